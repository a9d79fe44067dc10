/* The option tf32 is off by default, and changes the loss when on. A session that cannot use the option is refused. */
#include <math.h>

#include "../../api/check.h"

static protrain_options *options_of(const char *device, const char *tf32) {
  protrain_options *options = gpt2_options();
  OK(protrain_options_set(options, "device", device));
  if (tf32 != NULL) OK(protrain_options_set(options, "tf32", tf32));
  return options;
}

static float loss_of(const char *tf32) {
  protrain_session *session = gpt2_session(options_of("cuda:0", tf32));
  float loss = 0;
  set_inputs(session);
  for (int i = 0; i < 2; ++i) OK(protrain_step(session, &loss));
  protrain_session_destroy(session);
  return loss;
}

static void refuses(protrain_options *options) {
  protrain_session *session = NULL;
  FAILS(protrain_session_create(options, gpt2_path(), &session), PROTRAIN_ERROR_UNSUPPORTED, "tf32");
  protrain_options_destroy(options);
}

int main(void) {
  const float exact = loss_of(NULL), rounded = loss_of("on");
  CHECK(loss_of("off") == exact);
  CHECK(loss_of("on") == rounded);
  CHECK(rounded != exact);
  CHECK(fabsf(rounded - exact) < 1e-2f);
  refuses(options_of("cpu", "on"));
  protrain_options *narrow = options_of("cuda:0", "on");
  OK(protrain_options_set(narrow, "precision", "bf16"));
  refuses(narrow);
  return 0;
}
