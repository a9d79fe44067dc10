/* A process may exit while a thread of it steps. The step must not meet anything that the exit has destroyed. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { kMilliseconds = 60000 }; /* of patience; under a sanitizer a step is slow */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int steps_made = 0;

static int steps(int more) {
  int made = 0;
  pthread_mutex_lock(&mutex);
  made = steps_made += more;
  pthread_mutex_unlock(&mutex);
  return made;
}

static void *step_on(void *session) {
  for (;;) {
    float loss = 0;
    protrain_error *error = protrain_step(session, &loss);
    if (error != NULL) {
      fprintf(stderr, "a step failed while the process exits: %s\n", protrain_error_text(error));
      _exit(1);
    }
    steps(1);
  }
  return NULL;
}

static void await_steps(int count) {
  const struct timespec pause = {0, 1000000};
  const int wanted = steps(0) + count;
  for (int i = 0; steps(0) < wanted; ++i) {
    if (i == kMilliseconds) {
      fprintf(stderr, "no more steps were made\n");
      _exit(1);
    }
    nanosleep(&pause, NULL);
  }
}

/* Handlers of the exit run in the reverse order of their registration, and the library registers its own with the
   session, which is created later. So this one runs after them. */
static void await_steps_amid_the_exit(void) {
  if (steps(0) > 0) await_steps(3); /* none: the test has failed before */
}

void test_exit(void) {
  pthread_t thread;
  protrain_session *session = NULL;
  CHECK(atexit(await_steps_amid_the_exit) == 0);
  session = gpt2_session(gpt2_options());
  set_inputs(session);
  CHECK(pthread_create(&thread, NULL, step_on, session) == 0);
  CHECK(pthread_detach(thread) == 0);
  await_steps(2);
}
