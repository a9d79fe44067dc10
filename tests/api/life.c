/* A session's life from create to destroy: the loss falls, and every query returns an answer. */
#include <math.h>

#include "check.h"

static void inputs_are_those_of_the_model(protrain_session *session) {
  size_t count = 0, rank = 0;
  int32_t dtype = 0;
  int64_t dims[4] = {-1, -1, -1, -1};
  const char *name = NULL;
  OK(protrain_session_input_count(session, &count));
  CHECK(count == 2);
  OK(protrain_session_input_name(session, 0, &name));
  CHECK(strcmp(name, "input_ids") == 0);
  OK(protrain_session_input_dtype(session, 0, &dtype));
  CHECK(dtype == PROTRAIN_INT64);
  OK(protrain_session_input_shape(session, 0, dims, 4, &rank));
  CHECK(rank == 2 && dims[0] == kBatch && dims[1] == kSequence && dims[2] == -1);
  rank = 0;
  OK(protrain_session_input_shape(session, 0, NULL, 0, &rank));
  CHECK(rank == 2);
}

static void loss_falls(protrain_session *session) {
  float first = 0, loss = 0, before = 0;
  double norm = 0;
  uint64_t steps = 0;
  set_inputs(session);
  OK(protrain_eval(session, &before));
  OK(protrain_step(session, &first));
  CHECK(first > 3 && first < 12); /* a fresh model with a vocabulary of 512: near log 512 = 6.2 */
  CHECK(fabsf(first - before) < 1e-5f * first);
  OK(protrain_session_grad_norm(session, &norm));
  CHECK(norm > 0);
  for (int i = 0; i < 19; ++i) OK(protrain_step(session, &loss));
  CHECK(loss < 0.9f * first);
  OK(protrain_session_step_count(session, &steps));
  CHECK(steps == 20);
}

/* An output that is kept can be read after a prediction. Here it is the loss. */
static void outputs_are_kept(void) {
  protrain_options *options = gpt2_options();
  protrain_session *session = NULL;
  size_t count = 0, rank = 7;
  int32_t dtype = 0;
  float loss = 0, output = 0;
  const char *name = NULL;
  OK(protrain_options_set(options, "keep_outputs", "*"));
  session = gpt2_session(options);
  OK(protrain_session_output_count(session, &count));
  OK(protrain_session_output_name(session, 0, &name));
  CHECK(count == 1 && strcmp(name, "loss") == 0);
  OK(protrain_session_output_dtype(session, 0, &dtype));
  OK(protrain_session_output_shape(session, 0, NULL, 0, &rank));
  CHECK(dtype == PROTRAIN_FLOAT32 && rank == 0);
  set_inputs(session);
  OK(protrain_eval(session, &loss));
  OK(protrain_predict(session));
  OK(protrain_session_output_read(session, "loss", PROTRAIN_FLOAT32, &output, sizeof output));
  CHECK(fabsf(output - loss) < 1e-5f * loss);
  protrain_session_destroy(session);
}

static void a_session_alone_is_rank_0_of_1(protrain_session *session) {
  uint64_t rank = 7, count = 7;
  OK(protrain_session_rank(session, &rank));
  OK(protrain_session_rank_count(session, &count));
  CHECK(rank == 0 && count == 1);
}

static void texts_are_there(protrain_session *session) {
  const char *text = NULL;
  OK(protrain_session_plan(session, &text));
  CHECK(strstr(text, "n_persist") != NULL);
  OK(protrain_session_program(session, &text));
  CHECK(strlen(text) > 100);
  OK(protrain_session_graph(session, &text));
  CHECK(strstr(text, "MatMul") != NULL);
  OK(protrain_session_report(session, &text));
  CHECK(strstr(text, "device_peak_bytes") != NULL);
}

static void gradients_are_checked(void) {
  const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const int64_t dims[2] = {2, 4};
  const char *text = NULL;
  protrain_options *options = NULL;
  protrain_session *session = NULL;
  OK(protrain_options_create(&options));
  OK(protrain_options_set(options, "dim", "batch=2"));
  OK(protrain_session_create(options, PROTRAIN_FIXTURES "/root.onnx", &session));
  OK(protrain_session_set_input(session, "x", PROTRAIN_FLOAT32, dims, 2, values, sizeof values));
  OK(protrain_session_set_input(session, "u", PROTRAIN_FLOAT32, dims, 2, values, sizeof values));
  OK(protrain_session_check_gradients(session, 1, &text));
  CHECK(strstr(text, "\"loss_float64\"") != NULL && strstr(text, "\"passed\": true") != NULL);
  CHECK(strstr(text, "\"passed\": false") == NULL);
  protrain_session_destroy(session);
  protrain_options_destroy(options);
}

static void export_trains_on(protrain_session *session) {
  static const char path[] = "api_test_exported.onnx";
  protrain_options *options = gpt2_options();
  protrain_session *again = NULL;
  float here = 0, there = 0;
  OK(protrain_session_export(session, path));
  OK(protrain_session_create(options, path, &again));
  set_inputs(again);
  OK(protrain_eval(session, &here));
  OK(protrain_eval(again, &there));
  CHECK(here == there);
  protrain_session_destroy(again);
  protrain_options_destroy(options);
  CHECK(remove(path) == 0);
}

/* A session made from bytes gives the same loss, bit for bit, as one made from the file, even after the caller has
 * overwritten the bytes. Bytes that are no model are refused. */
static void a_model_in_memory_trains(protrain_session *from_file) {
  protrain_options *options = gpt2_options();
  protrain_session *session = NULL;
  FILE *file = fopen(gpt2_path(), "rb");
  char *bytes = malloc(1 << 21);
  const size_t length = file == NULL || bytes == NULL ? 0 : fread(bytes, 1, 1 << 21, file);
  float here = 0, there = 0;
  CHECK(length > 0 && fclose(file) == 0);
  OK(protrain_session_create_from_bytes(options, bytes, length, NULL, &session));
  memset(bytes, 0, length);
  set_inputs(session);
  set_inputs(from_file);
  OK(protrain_eval(session, &here));
  OK(protrain_eval(from_file, &there));
  CHECK(here == there);
  protrain_session_destroy(session);
  FAILS(protrain_session_create_from_bytes(options, bytes, length, "", &session), PROTRAIN_ERROR_FORMAT,
        "the model in memory");
  CHECK(session == NULL);
  FAILS(protrain_session_create_from_bytes(options, NULL, 0, NULL, &session), PROTRAIN_ERROR_FORMAT, NULL);
  protrain_options_destroy(options);
  free(bytes);
}

static void check_describes_the_model(void) {
  const char *json = NULL;
  protrain_options *options = NULL;
  OK(protrain_options_create(&options));
  OK(protrain_model_check(options, gpt2_path(), &json));
  CHECK(strstr(json, "\"inputs\"") != NULL && strstr(json, "sequence") != NULL);
  protrain_options_destroy(options);
}

void test_life(void) {
  char last[256] = "";
  protrain_session *session = gpt2_session(gpt2_options());
  OK(protrain_session_set_log(session, remember, last));
  CHECK(strstr(last, "created") != NULL);
  inputs_are_those_of_the_model(session);
  a_model_in_memory_trains(session);
  loss_falls(session);
  a_session_alone_is_rank_0_of_1(session);
  CHECK(strstr(last, "step") != NULL);
  OK(protrain_session_set_log(session, NULL, NULL));
  texts_are_there(session);
  export_trains_on(session);
  protrain_session_destroy(session);
  outputs_are_kept();
  check_describes_the_model();
  gradients_are_checked();
}
