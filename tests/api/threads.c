/* Only one thread at a time may call a session; a child process may not call it at all. Any thread may cancel. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static void *ask_while_busy(void *session) {
  uint64_t steps;
  FAILS(protrain_session_step_count(session, &steps), PROTRAIN_ERROR_BUSY, "session");
  return NULL;
}

/* A log callback that runs during a step: other calls must fail as busy. */
static void reenter(const char *json_line, void *user) {
  pthread_t other;
  float loss;
  (void)json_line;
  FAILS(protrain_step(user, &loss), PROTRAIN_ERROR_BUSY, "session");
  CHECK(pthread_create(&other, NULL, ask_while_busy, user) == 0);
  CHECK(pthread_join(other, NULL) == 0);
}

static void second_entries_are_refused(protrain_session *session) {
  float loss = 0;
  OK(protrain_session_set_log(session, reenter, session));
  OK(protrain_step(session, &loss));
  OK(protrain_session_set_log(session, NULL, NULL));
}

static void a_cancelled_step_changes_nothing(protrain_session *session) {
  float before = 0, after = 0, loss = 0;
  uint64_t steps = 0, again = 0;
  OK(protrain_eval(session, &before));
  OK(protrain_session_step_count(session, &steps));
  protrain_session_cancel(session);
  FAILS(protrain_step(session, &loss), PROTRAIN_ERROR_CANCELLED, NULL);
  OK(protrain_session_step_count(session, &again));
  OK(protrain_eval(session, &after));
  CHECK(steps == again && before == after);
  OK(protrain_step(session, &loss));
}

static void *cancel_soon(void *session) {
  const struct timespec pause = {0, 20000000};
  nanosleep(&pause, NULL);
  protrain_session_cancel(session);
  return NULL;
}

static void another_thread_can_cancel(protrain_session *session) {
  pthread_t other;
  protrain_error *error = NULL;
  float loss = 0;
  CHECK(pthread_create(&other, NULL, cancel_soon, session) == 0);
  while (error == NULL) error = protrain_step(session, &loss);
  CHECK(protrain_error_code(error) == PROTRAIN_ERROR_CANCELLED);
  CHECK(protrain_error_usable(error) == 1);
  protrain_error_destroy(error);
  CHECK(pthread_join(other, NULL) == 0);
  OK(protrain_step(session, &loss));
}

static void children_are_refused(protrain_session *session) {
  float loss = 0;
  int status = 0;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    FAILS(protrain_step(session, &loss), PROTRAIN_ERROR_FORKED, "session");
    protrain_session_destroy(session); /* does nothing in a child */
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  OK(protrain_step(session, &loss));
}

static void *export_while_cancelled(void *session) {
  CHECK(pthread_cancel(pthread_self()) == 0);
  OK(protrain_session_export(session, "api_cancelled.onnx"));
  CHECK(remove("api_cancelled.onnx") == 0);
  pthread_testcancel();
  return NULL;
}

static void a_thread_is_cancelled_after_its_call(protrain_session *session) {
  pthread_t thread;
  void *result = NULL;
  CHECK(pthread_create(&thread, NULL, export_while_cancelled, session) == 0);
  pthread_join(thread, &result);
  CHECK(result == PTHREAD_CANCELED);
}

static void *step_elsewhere(void *session) {
  float loss = 0;
  OK(protrain_step(session, &loss));
  return NULL;
}

static void sessions_move_between_threads(protrain_session *session) {
  for (int i = 0; i < 4; ++i) {
    pthread_t other;
    CHECK(pthread_create(&other, NULL, step_elsewhere, session) == 0);
    CHECK(pthread_join(other, NULL) == 0);
  }
}

void test_threads(void) {
  protrain_session *session = gpt2_session(gpt2_options());
  set_inputs(session);
  second_entries_are_refused(session);
  a_cancelled_step_changes_nothing(session);
  another_thread_can_cancel(session);
  children_are_refused(session);
  a_thread_is_cancelled_after_its_call(session);
  sessions_move_between_threads(session);
  protrain_session_destroy(session);
}
