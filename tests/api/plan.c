/* Plans, profiles, and the log lines of the measurements for them. */
#include "check.h"

/* A log callback that counts its calls. Each line must report the next measured kernel. */
static void count_event(const char *json_line, void *user) {
  size_t *count = user;
  char start[64];
  snprintf(start, sizeof start, "{\"event\":\"profiling\",\"done\":%zu,\"of\":", *count);
  CHECK(strncmp(json_line, start, strlen(start)) == 0);
  CHECK(strchr(json_line, '\n') == NULL);
  ++*count;
}

static void a_log_hears_what_is_measured(protrain_options *options) {
  const char *json = NULL;
  size_t heard = 0;
  OK(protrain_options_set_log(options, count_event, &heard));
  OK(protrain_model_profile(options, gpt2_path(), &json));
  CHECK(strstr(json, "\"kernels\"") != NULL);
  CHECK(heard > 10);
  OK(protrain_options_set_log(options, NULL, NULL));
  heard = 0;
  OK(protrain_model_profile(options, gpt2_path(), &json)); /* no log is set */
  CHECK(heard == 0);
}

static void a_session_measures_nothing_that_is_known(protrain_options *options) {
  protrain_session *session = NULL;
  const char *json = NULL;
  size_t heard = 0;
  OK(protrain_options_set_log(options, count_event, &heard));
  OK(protrain_session_create(options, gpt2_path(), &session));
  OK(protrain_model_plan(options, gpt2_path(), &json));
  CHECK(heard == 0);
  CHECK(strstr(json, "\"feasible\": true") != NULL);
  protrain_session_destroy(session);
  OK(protrain_options_set_log(options, NULL, NULL));
}

static void a_plan_for_another_machine_is_told_but_not_followed(protrain_options *options) {
  protrain_session *session = NULL;
  const char *json = NULL;
  OK(protrain_options_set(options, "hardware", "rtx3090"));
  OK(protrain_model_plan(options, gpt2_path(), &json));
  CHECK(strstr(json, "\"hardware\": \"rtx3090\"") != NULL);
  FAILS(protrain_session_create(options, gpt2_path(), &session), PROTRAIN_ERROR_ARG, "hardware");
  FAILS(protrain_model_profile(options, gpt2_path(), &json), PROTRAIN_ERROR_ARG, "hardware");
  OK(protrain_options_set(options, "device_memory", "64KiB"));
  OK(protrain_model_plan(options, gpt2_path(), &json)); /* a budget that is too small is no error here */
  CHECK(strstr(json, "\"feasible\": false") != NULL);
  OK(protrain_options_set(options, "hardware", "abacus"));
  FAILS(protrain_model_plan(options, gpt2_path(), &json), PROTRAIN_ERROR_ARG, "hardware");
  FAILS(protrain_model_plan(options, "no-such-file.onnx", &json), PROTRAIN_ERROR_ARG, "hardware");
}

void test_plan(void) {
  protrain_options *options = gpt2_options();
  const char *json = NULL;
  FAILS(protrain_model_plan(options, "no-such-file.onnx", &json), PROTRAIN_ERROR_IO, "no-such-file.onnx");
  FAILS(protrain_model_plan(NULL, gpt2_path(), &json), PROTRAIN_ERROR_ARG, "options");
  FAILS(protrain_model_plan(options, NULL, &json), PROTRAIN_ERROR_ARG, "model_path");
  FAILS(protrain_model_plan(options, gpt2_path(), NULL), PROTRAIN_ERROR_ARG, "json");
  FAILS(protrain_model_profile(NULL, gpt2_path(), &json), PROTRAIN_ERROR_ARG, "options");
  FAILS(protrain_model_profile(options, NULL, &json), PROTRAIN_ERROR_ARG, "model_path");
  FAILS(protrain_model_profile(options, gpt2_path(), NULL), PROTRAIN_ERROR_ARG, "json");
  FAILS(protrain_options_set_log(NULL, count_event, NULL), PROTRAIN_ERROR_ARG, "options");
  CHECK(json == NULL);
  OK(protrain_options_set(options, "profile_dir", "api_test_profile"));
  a_log_hears_what_is_measured(options);
  a_session_measures_nothing_that_is_known(options);
  a_plan_for_another_machine_is_told_but_not_followed(options);
  protrain_options_destroy(options);
}
