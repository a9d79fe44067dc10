/* Passes wrong values to the functions, and checks code and subject of each error. Other tests have broken model files.
 */
#include <math.h>

#include "check.h"

static void options_are_refused_with_reasons(protrain_options *options) {
  const char *value = NULL;
  protrain_error *error = protrain_options_set(options, "learning_rte", "1");
  CHECK(protrain_error_code(error) == PROTRAIN_ERROR_ARG);
  CHECK(strstr(protrain_error_text(error), "learning_rate") != NULL);
  CHECK(protrain_error_usable(error) == 1);
  protrain_error_destroy(error);
  FAILS(protrain_options_set(options, "learning_rate", "fast"), PROTRAIN_ERROR_ARG, "learning_rate");
  FAILS(protrain_options_set(options, "learning_rate", "-1"), PROTRAIN_ERROR_ARG, "learning_rate");
  FAILS(protrain_options_set(options, "precision", "fp64"), PROTRAIN_ERROR_ARG, "precision");
  FAILS(protrain_options_get(options, "nothing", &value), PROTRAIN_ERROR_ARG, "nothing");
  OK(protrain_options_get(options, "learning_rate", &value));
  CHECK(strcmp(value, "0.001") == 0);
  OK(protrain_options_get(options, "dim", &value));
  CHECK(strcmp(value, "batch=2\nsequence=32") == 0);
}

static void sessions_are_refused_with_reasons(void) {
  protrain_options *unbound = NULL, *options = gpt2_options();
  protrain_session *session = NULL;
  const char *json = NULL;
  FAILS(protrain_session_create(options, "no-such-file.onnx", &session), PROTRAIN_ERROR_IO, "no-such-file.onnx");
  FAILS(protrain_model_check(options, "no-such-file.onnx", &json), PROTRAIN_ERROR_IO, "no-such-file.onnx");
  FAILS(protrain_session_create(options, PROTRAIN_FIXTURES "/input_ids.npy", &session), PROTRAIN_ERROR_FORMAT, NULL);
  OK(protrain_options_create(&unbound));
  FAILS(protrain_session_create(unbound, gpt2_path(), &session), PROTRAIN_ERROR_SHAPE, NULL);
  OK(protrain_options_set(options, "memory", "64KiB"));
  FAILS(protrain_session_create(options, gpt2_path(), &session), PROTRAIN_ERROR_BUDGET, NULL);
  CHECK(session == NULL);
  protrain_options_destroy(unbound);
  protrain_options_destroy(options);
}

static void inputs_are_refused_with_reasons(protrain_session *session) {
  const int64_t dims[2] = {kBatch, kSequence}, swapped[2] = {kSequence, kBatch}, negative[2] = {-2, -32};
  int64_t tokens[kTokens] = {0};
  const size_t size = sizeof tokens;
  FAILS(protrain_session_set_input(session, "ids", PROTRAIN_INT64, dims, 2, tokens, size), PROTRAIN_ERROR_ARG, "ids");
  FAILS(protrain_session_set_input(session, "labels", 0, dims, 2, tokens, size), PROTRAIN_ERROR_ARG, "dtype");
  FAILS(protrain_session_set_input(session, "labels", 99, dims, 2, tokens, size), PROTRAIN_ERROR_ARG, "dtype");
  FAILS(protrain_session_set_input(session, "labels", PROTRAIN_FLOAT64, dims, 2, tokens, size), PROTRAIN_ERROR_TYPE,
        "labels");
  FAILS(protrain_session_set_input(session, "labels", PROTRAIN_INT64, swapped, 2, tokens, size), PROTRAIN_ERROR_SHAPE,
        "labels");
  FAILS(protrain_session_set_input(session, "labels", PROTRAIN_INT64, negative, 2, tokens, size), PROTRAIN_ERROR_SHAPE,
        "labels");
  FAILS(protrain_session_set_input(session, "labels", PROTRAIN_INT64, dims, 1, tokens, size), PROTRAIN_ERROR_SHAPE,
        "labels");
  FAILS(protrain_session_set_input(session, "labels", PROTRAIN_INT64, dims, 2, tokens, size - 1), PROTRAIN_ERROR_SHAPE,
        "labels");
  FAILS(protrain_session_set_input(session, "labels", PROTRAIN_INT64, dims, (size_t)-1, tokens, size),
        PROTRAIN_ERROR_ARG, "labels");
  const int64_t endless[2] = {INT64_MAX, 8};
  FAILS(protrain_session_set_input(session, "labels", PROTRAIN_INT64, endless, 2, tokens, size), PROTRAIN_ERROR_SHAPE,
        "labels");
}

static void questions_before_the_first_step_are_refused(protrain_session *session) {
  float loss = 0;
  double norm = 0;
  FAILS(protrain_step(session, &loss), PROTRAIN_ERROR_STATE, NULL);
  FAILS(protrain_eval(session, &loss), PROTRAIN_ERROR_STATE, NULL);
  FAILS(protrain_predict(session), PROTRAIN_ERROR_STATE, "keep_outputs");
  FAILS(protrain_session_grad_norm(session, &norm), PROTRAIN_ERROR_STATE, NULL);
}

static void indices_and_names_are_checked(protrain_session *session) {
  size_t count = 0, size = 0;
  int32_t dtype = 0;
  float value = 0;
  const char *name = NULL;
  OK(protrain_session_parameter_count(session, &count));
  FAILS(protrain_session_parameter_name(session, count, &name), PROTRAIN_ERROR_ARG, "index");
  FAILS(protrain_session_parameter_shape(session, count, NULL, 0, &size), PROTRAIN_ERROR_ARG, "index");
  FAILS(protrain_session_parameter_elements(session, (size_t)-1, &size), PROTRAIN_ERROR_ARG, "index");
  FAILS(protrain_session_input_name(session, 2, &name), PROTRAIN_ERROR_ARG, "index");
  FAILS(protrain_session_input_dtype(session, 2, &dtype), PROTRAIN_ERROR_ARG, "index");
  FAILS(protrain_session_input_shape(session, 2, NULL, 0, &size), PROTRAIN_ERROR_ARG, "index");
  FAILS(protrain_session_output_name(session, 0, &name), PROTRAIN_ERROR_ARG, "index");
  FAILS(protrain_session_output_dtype(session, 0, &dtype), PROTRAIN_ERROR_ARG, "index");
  FAILS(protrain_session_output_shape(session, 0, NULL, 0, &size), PROTRAIN_ERROR_ARG, "index");
  FAILS(protrain_session_output_read(session, "loss", PROTRAIN_FLOAT32, &value, 4), PROTRAIN_ERROR_ARG, "loss");
  FAILS(protrain_session_parameter_read(session, "nobody", &value, 1), PROTRAIN_ERROR_ARG, "nobody");
  OK(protrain_session_parameter_name(session, 0, &name));
  {
    char first[256];
    snprintf(first, sizeof first, "%s", name);
    FAILS(protrain_session_parameter_read(session, first, &value, 1), PROTRAIN_ERROR_SHAPE, first);
    FAILS(protrain_session_parameter_write(session, first, &value, 1), PROTRAIN_ERROR_SHAPE, first);
    FAILS(protrain_session_grad_read(session, first, &value, 1), PROTRAIN_ERROR_SHAPE, first);
  }
}

static void rates_are_checked(protrain_session *session) {
  FAILS(protrain_session_set_learning_rate(session, -1e-9), PROTRAIN_ERROR_ARG, "rate");
  FAILS(protrain_session_set_learning_rate(session, NAN), PROTRAIN_ERROR_ARG, "rate");
  FAILS(protrain_session_set_learning_rate(session, INFINITY), PROTRAIN_ERROR_ARG, "rate");
}

/* A step with invalid data fails, and the session goes on. */
static void tokens_beyond_the_vocabulary_are_refused(protrain_session *session) {
  const int64_t dims[2] = {kBatch, kSequence};
  int64_t tokens[kTokens] = {0};
  float loss = 0;
  uint64_t steps = 1;
  set_inputs(session);
  tokens[5] = 512;
  OK(protrain_session_set_input(session, "input_ids", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens));
  FAILS(protrain_step(session, &loss), PROTRAIN_ERROR_ARG, NULL);
  OK(protrain_session_step_count(session, &steps));
  CHECK(steps == 0);
  set_inputs(session);
  OK(protrain_step(session, &loss));
}

static void foreign_text_is_escaped(protrain_options *options) {
  protrain_error *error = protrain_options_set(options, "a\x1b[2Jb\nc", "1");
  CHECK(strcmp(protrain_error_subject(error), "a\\x1b[2Jb\\x0ac") == 0);
  CHECK(strchr(protrain_error_text(error), '\x1b') == NULL && strchr(protrain_error_text(error), '\n') == NULL);
  protrain_error_destroy(error);
}

void test_errors(void) {
  protrain_options *options = gpt2_options();
  protrain_session *session;
  options_are_refused_with_reasons(options);
  foreign_text_is_escaped(options);
  sessions_are_refused_with_reasons();
  session = gpt2_session(options);
  questions_before_the_first_step_are_refused(session);
  inputs_are_refused_with_reasons(session);
  indices_and_names_are_checked(session);
  rates_are_checked(session);
  tokens_beyond_the_vocabulary_are_refused(session);
  protrain_session_destroy(session);
}
