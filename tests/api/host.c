/* Settings that the host program made for its threads do not reach the library's arithmetic. */
#include <fenv.h>
#include <pthread.h>

#include "check.h"

static float loss_of_the_second_step(void) {
  protrain_session *session = gpt2_session(gpt2_options());
  float loss = 0;
  set_inputs(session);
  OK(protrain_step(session, &loss));
  OK(protrain_step(session, &loss));
  protrain_session_destroy(session);
  return loss;
}

static void the_hosts_rounding_changes_no_bit(float usual) {
  CHECK(fesetround(FE_UPWARD) == 0);
  const float loss = loss_of_the_second_step();
  CHECK(fegetround() == FE_UPWARD);
  fesetenv(FE_DFL_ENV);
  CHECK(memcmp(&loss, &usual, sizeof loss) == 0);
}

#if defined(__x86_64__)
/* Bits of the control register. kFlushes makes the processor set subnormal results and operands to zero. kTraps are the
 * masks of exceptions: an exception whose mask is not set traps. */
enum { kFlushes = 0x8040, kTraps = 0x1f80 };

static void the_hosts_flushing_and_traps_change_nothing(float usual) {
  const unsigned before = __builtin_ia32_stmxcsr(), set = (before | kFlushes) & ~(unsigned)kTraps;
  __builtin_ia32_ldmxcsr(set);
  const float loss = loss_of_the_second_step();
  const unsigned after = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before);
  CHECK(after == set);
  CHECK(memcmp(&loss, &usual, sizeof loss) == 0);
}
#endif

/* The thread sanitizer keeps 0.8 MiB of its own on each thread's stack. */
#if defined(__SANITIZE_THREAD__)
enum { kStack = (256 + 1024) << 10 };
#else
enum { kStack = 256 << 10 };
#endif

static void *train(void *loss) {
  *(float *)loss = loss_of_the_second_step();
  return NULL;
}

static void a_thread_with_the_stack_that_the_header_asks_for_can_train(float usual) {
  pthread_attr_t attributes;
  pthread_t thread;
  float loss = 0;
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, kStack) == 0);
  CHECK(pthread_create(&thread, &attributes, train, &loss) == 0);
  pthread_join(thread, NULL);
  pthread_attr_destroy(&attributes);
  CHECK(memcmp(&loss, &usual, sizeof loss) == 0);
}

void test_host(void) {
  const float usual = loss_of_the_second_step();
  the_hosts_rounding_changes_no_bit(usual);
#if defined(__x86_64__)
  the_hosts_flushing_and_traps_change_nothing(usual);
#endif
  a_thread_with_the_stack_that_the_header_asks_for_can_train(usual);
}
