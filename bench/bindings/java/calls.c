/* Measures in C the calls that Calls.java measures in Java. usage: calls MODEL.onnx */
#include <protrain.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kCalls = 1000, kRounds = 1000 };

static protrain_session *session;
static int64_t tokens[8 * 16];

static void check(protrain_error *error) {
  if (error == NULL) return;
  fprintf(stderr, "calls: %s\n", protrain_error_text(error));
  exit(1);
}

static void step_count(void) {
  uint64_t count;
  check(protrain_session_step_count(session, &count));
}

static void set_learning_rate(void) { check(protrain_session_set_learning_rate(session, 1e-3)); }

static void set_input(void) {
  const int64_t dims[2] = {8, 16};
  check(protrain_session_set_input(session, "labels", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens));
}

/* Prints the time of the fastest round, in nanoseconds per call. */
static void measure(const char *name, void (*call)(void)) {
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < kCalls; ++i) call();
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double taken = (double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec);
    if (taken < best) best = taken;
  }
  printf("%s %.0f\n", name, best / kCalls);
}

int main(int argc, char **argv) {
  protrain_options *options;
  if (argc != 2) return 2;
  check(protrain_options_create(&options));
  check(protrain_options_set(options, "dim", "batch=8"));
  check(protrain_options_set(options, "dim", "sequence=16"));
  check(protrain_options_set(options, "threads", "1"));
  check(protrain_session_create(options, argv[1], &session));
  measure("step_count", step_count);
  measure("set_learning_rate", set_learning_rate);
  measure("set_input", set_input);
  measure("set_input_array", set_input);
  protrain_session_destroy(session);
  protrain_options_destroy(options);
  return 0;
}
