/* The option tf32 is off by default, and changes the losses when on. A session that cannot use the option is refused.
 */
#include <math.h>
#include <string.h>

#include "../../api/check.h"

static protrain_options *options_of(const char *device, const char *tf32) {
  protrain_options *options = gpt2_options();
  OK(protrain_options_set(options, "device", device));
  if (tf32 != NULL) OK(protrain_options_set(options, "tf32", tf32));
  return options;
}

enum { kSteps = 6 };

/* The losses of the first steps. One of them alone may be equal by chance. */
struct losses {
  float of[kSteps];
};

static struct losses losses_with(const char *tf32) {
  protrain_session *session = gpt2_session(options_of("cuda:0", tf32));
  struct losses losses;
  set_inputs(session);
  for (int i = 0; i < kSteps; ++i) OK(protrain_step(session, &losses.of[i]));
  protrain_session_destroy(session);
  return losses;
}

static int same(struct losses a, struct losses b) { return memcmp(&a, &b, sizeof a) == 0; }

static void refuses(protrain_options *options) {
  protrain_session *session = NULL;
  FAILS(protrain_session_create(options, gpt2_path(), &session), PROTRAIN_ERROR_UNSUPPORTED, "tf32");
  protrain_options_destroy(options);
}

int main(void) {
  const struct losses exact = losses_with(NULL), rounded = losses_with("on");
  CHECK(same(losses_with("off"), exact));
  CHECK(same(losses_with("on"), rounded));
  CHECK(!same(rounded, exact));
  for (int i = 0; i < kSteps; ++i) CHECK(fabsf(rounded.of[i] - exact.of[i]) < 1e-2f);
  refuses(options_of("cpu", "on"));
  protrain_options *narrow = options_of("cuda:0", "on");
  OK(protrain_options_set(narrow, "precision", "bf16"));
  refuses(narrow);
  return 0;
}
