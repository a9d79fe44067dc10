/* Passes NULL for each pointer argument of each function in turn: an error must name the argument. */
#include "check.h"

#define IS_NULL(call, argument) FAILS(call, PROTRAIN_ERROR_ARG, argument)

static void null_is_fine_where_the_header_says_so(protrain_session *session) {
  protrain_error_destroy(NULL);
  protrain_options_destroy(NULL);
  protrain_session_destroy(NULL);
  protrain_session_cancel(NULL);
  CHECK(protrain_error_code(NULL) == PROTRAIN_OK);
  CHECK(strcmp(protrain_error_text(NULL), "") == 0);
  CHECK(strcmp(protrain_error_subject(NULL), "") == 0);
  CHECK(protrain_error_usable(NULL) == 1);
  OK(protrain_session_set_log(session, NULL, NULL));
}

static void null_options(protrain_options *options) {
  const char *text = "untouched";
  IS_NULL(protrain_options_create(NULL), "options");
  IS_NULL(protrain_options_set(NULL, "seed", "1"), "options");
  IS_NULL(protrain_options_set(options, NULL, "1"), "key");
  IS_NULL(protrain_options_set(options, "seed", NULL), "value");
  IS_NULL(protrain_options_get(NULL, "seed", &text), "options");
  IS_NULL(protrain_options_get(options, NULL, &text), "key");
  IS_NULL(protrain_options_get(options, "seed", NULL), "value");
  IS_NULL(protrain_options_help(NULL, &text), "options");
  IS_NULL(protrain_options_help(options, NULL), "json");
  IS_NULL(protrain_model_check(NULL, gpt2_path(), &text), "options");
  IS_NULL(protrain_model_check(options, NULL, &text), "model_path");
  IS_NULL(protrain_model_check(options, gpt2_path(), NULL), "json");
  CHECK(strcmp(text, "untouched") == 0);
  IS_NULL(protrain_model_merge(NULL, gpt2_path(), "x", "y"), "options");
  IS_NULL(protrain_model_merge(options, NULL, "x", "y"), "model_path");
  IS_NULL(protrain_model_merge(options, gpt2_path(), NULL, "y"), "adapter_directory");
  IS_NULL(protrain_model_merge(options, gpt2_path(), "x", NULL), "path");
}

static void null_create(protrain_options *options) {
  protrain_session *session = (protrain_session *)options; /* anything but NULL */
  IS_NULL(protrain_session_create(NULL, gpt2_path(), &session), "options");
  CHECK(session == NULL);
  IS_NULL(protrain_session_create(options, NULL, &session), "model_path");
  IS_NULL(protrain_session_create(options, gpt2_path(), NULL), "session");
  IS_NULL(protrain_session_create_from_bytes(NULL, "x", 1, NULL, &session), "options");
  IS_NULL(protrain_session_create_from_bytes(options, NULL, 1, NULL, &session), "bytes");
  IS_NULL(protrain_session_create_from_bytes(options, "x", 1, NULL, NULL), "session");
}

static void null_sessions(void) {
  size_t size;
  uint64_t count;
  int32_t dtype;
  float value;
  double norm;
  const char *text;
  IS_NULL(protrain_session_set_log(NULL, NULL, NULL), "session");
  IS_NULL(protrain_session_input_count(NULL, &size), "session");
  IS_NULL(protrain_session_input_name(NULL, 0, &text), "session");
  IS_NULL(protrain_session_input_dtype(NULL, 0, &dtype), "session");
  IS_NULL(protrain_session_input_shape(NULL, 0, NULL, 0, &size), "session");
  IS_NULL(protrain_session_set_input(NULL, "x", PROTRAIN_FLOAT32, NULL, 0, &value, 4), "session");
  IS_NULL(protrain_step(NULL, &value), "session");
  IS_NULL(protrain_eval(NULL, &value), "session");
  IS_NULL(protrain_predict(NULL), "session");
  IS_NULL(protrain_session_output_count(NULL, &size), "session");
  IS_NULL(protrain_session_output_name(NULL, 0, &text), "session");
  IS_NULL(protrain_session_output_shape(NULL, 0, NULL, 0, &size), "session");
  IS_NULL(protrain_session_output_read(NULL, "x", PROTRAIN_FLOAT32, &value, 4), "session");
  IS_NULL(protrain_session_grad_norm(NULL, &norm), "session");
  IS_NULL(protrain_session_step_count(NULL, &count), "session");
  IS_NULL(protrain_session_rank(NULL, &count), "session");
  IS_NULL(protrain_session_rank_count(NULL, &count), "session");
  IS_NULL(protrain_session_learning_rate(NULL, &norm), "session");
  IS_NULL(protrain_session_set_learning_rate(NULL, 0.1), "session");
  IS_NULL(protrain_session_parameter_count(NULL, &size), "session");
  IS_NULL(protrain_session_parameter_name(NULL, 0, &text), "session");
  IS_NULL(protrain_session_parameter_shape(NULL, 0, NULL, 0, &size), "session");
  IS_NULL(protrain_session_parameter_elements(NULL, 0, &size), "session");
  IS_NULL(protrain_session_parameter_read(NULL, "x", &value, 1), "session");
  IS_NULL(protrain_session_parameter_write(NULL, "x", &value, 1), "session");
  IS_NULL(protrain_session_flat_parameters_elements(NULL, &size), "session");
  IS_NULL(protrain_session_flat_parameters_read(NULL, &value, 1), "session");
  IS_NULL(protrain_session_flat_parameters_write(NULL, &value, 1), "session");
  IS_NULL(protrain_session_grad_read(NULL, "x", &value, 1), "session");
  IS_NULL(protrain_session_export(NULL, "x"), "session");
  IS_NULL(protrain_session_export_adapters(NULL, "x"), "session");
  IS_NULL(protrain_session_load_adapters(NULL, "x"), "session");
  IS_NULL(protrain_session_use_adapters(NULL, 1), "session");
  IS_NULL(protrain_session_save(NULL, "x"), "session");
  IS_NULL(protrain_session_plan(NULL, &text), "session");
  IS_NULL(protrain_session_program(NULL, &text), "session");
  IS_NULL(protrain_session_graph(NULL, &text), "session");
  IS_NULL(protrain_session_report(NULL, &text), "session");
  IS_NULL(protrain_session_check_gradients(NULL, 1, &text), "session");
}

static void null_arguments(protrain_session *session) {
  const int64_t dims[2] = {kBatch, kSequence};
  const int64_t tokens[kTokens] = {0};
  size_t rank;
  float value;
  IS_NULL(protrain_session_input_count(session, NULL), "count");
  IS_NULL(protrain_session_input_name(session, 0, NULL), "name");
  IS_NULL(protrain_session_input_dtype(session, 0, NULL), "dtype");
  IS_NULL(protrain_session_input_shape(session, 0, NULL, 1, &rank), "dims");
  IS_NULL(protrain_session_input_shape(session, 0, NULL, 0, NULL), "rank");
  IS_NULL(protrain_session_set_input(session, NULL, PROTRAIN_INT64, dims, 2, tokens, sizeof tokens), "name");
  IS_NULL(protrain_session_set_input(session, "labels", PROTRAIN_INT64, NULL, 2, tokens, sizeof tokens), "dims");
  IS_NULL(protrain_session_set_input(session, "labels", PROTRAIN_INT64, dims, 2, NULL, sizeof tokens), "data");
  IS_NULL(protrain_step(session, NULL), "loss");
  IS_NULL(protrain_eval(session, NULL), "loss");
  IS_NULL(protrain_session_grad_norm(session, NULL), "norm");
  IS_NULL(protrain_session_learning_rate(session, NULL), "rate");
  IS_NULL(protrain_session_step_count(session, NULL), "count");
  IS_NULL(protrain_session_rank(session, NULL), "rank");
  IS_NULL(protrain_session_rank_count(session, NULL), "count");
  IS_NULL(protrain_session_parameter_count(session, NULL), "count");
  IS_NULL(protrain_session_parameter_name(session, 0, NULL), "name");
  IS_NULL(protrain_session_parameter_shape(session, 0, NULL, 1, &rank), "dims");
  IS_NULL(protrain_session_parameter_shape(session, 0, NULL, 0, NULL), "rank");
  IS_NULL(protrain_session_parameter_elements(session, 0, NULL), "elements");
  IS_NULL(protrain_session_parameter_read(session, NULL, &value, 1), "name");
  IS_NULL(protrain_session_parameter_read(session, "x", NULL, 1), "values");
  IS_NULL(protrain_session_parameter_write(session, NULL, &value, 1), "name");
  IS_NULL(protrain_session_parameter_write(session, "x", NULL, 1), "values");
  IS_NULL(protrain_session_flat_parameters_elements(session, NULL), "elements");
  IS_NULL(protrain_session_flat_parameters_read(session, NULL, 1), "values");
  IS_NULL(protrain_session_flat_parameters_write(session, NULL, 1), "values");
  IS_NULL(protrain_session_grad_read(session, NULL, &value, 1), "name");
  IS_NULL(protrain_session_grad_read(session, "x", NULL, 1), "values");
  IS_NULL(protrain_session_export(session, NULL), "path");
  IS_NULL(protrain_session_export_adapters(session, NULL), "directory");
  IS_NULL(protrain_session_load_adapters(session, NULL), "directory");
  IS_NULL(protrain_session_save(session, NULL), "directory");
  IS_NULL(protrain_session_plan(session, NULL), "json");
  IS_NULL(protrain_session_program(session, NULL), "text");
  IS_NULL(protrain_session_graph(session, NULL), "text");
  IS_NULL(protrain_session_report(session, NULL), "json");
  IS_NULL(protrain_session_check_gradients(session, 1, NULL), "json");
}

void test_misuse(void) {
  protrain_options *options = gpt2_options();
  protrain_session *session;
  float loss = 0;
  null_options(options);
  null_create(options);
  session = gpt2_session(options);
  null_is_fine_where_the_header_says_so(session);
  null_sessions();
  null_arguments(session);
  set_inputs(session); /* the session still works after these errors */
  OK(protrain_step(session, &loss));
  protrain_session_destroy(session);
}
