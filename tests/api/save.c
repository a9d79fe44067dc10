/* A session is saved, and another resumes from the checkpoint with the same bits. */
#include "check.h"

static char directory[] = "api_test_saved-XXXXXX";

static float steps_from(protrain_session *session, int count) {
  float loss = 0;
  set_inputs(session);
  for (int i = 0; i < count; ++i) OK(protrain_step(session, &loss));
  return loss;
}

static void what_was_saved_goes_on(protrain_session *first) {
  protrain_options *options = gpt2_options();
  protrain_session *second = NULL;
  uint64_t steps = 0;
  OK(protrain_options_set(options, "resume", directory));
  OK(protrain_session_create(options, gpt2_path(), &second));
  OK(protrain_session_step_count(second, &steps));
  CHECK(steps == 3);
  CHECK(steps_from(second, 2) == steps_from(first, 2));
  protrain_session_destroy(second);
  OK(protrain_options_set(options, "seed", "1"));
  FAILS(protrain_session_create(options, gpt2_path(), &second), PROTRAIN_ERROR_MISMATCH, "seed");
  CHECK(second == NULL);
  protrain_options_destroy(options);
}

static void remove_what_was_saved(void) {
  static const char *names[] = {"/weights.safetensors", "/optimizer.safetensors", "/manifest.json", ""};
  char path[256];
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    snprintf(path, sizeof path, "%s/step-0000000003%s", directory, names[i]);
    CHECK(remove(path) == 0);
  }
  CHECK(remove(directory) == 0);
}

void test_save(void) {
  char last[256] = "";
  protrain_session *session = gpt2_session(gpt2_options());
  CHECK(mkdtemp(directory) != NULL);
  OK(protrain_session_set_log(session, remember, last));
  steps_from(session, 3);
  FAILS(protrain_session_save(session, "no/such"), PROTRAIN_ERROR_IO, "no/such");
  OK(protrain_session_save(session, directory));
  CHECK(strstr(last, "saved") != NULL && strstr(last, "step-0000000003") != NULL);
  OK(protrain_session_set_log(session, NULL, NULL));
  what_was_saved_goes_on(session);
  remove_what_was_saved();
  protrain_session_destroy(session);
}
