/* The smallest user of an installed libprotrain: two steps on one batch. Prints both losses; the second is lower. */
#include <protrain.h>
#include <stdio.h>
#include <stdlib.h>

enum { kBatch = 2, kSequence = 16, kTokens = kBatch * kSequence };

static void check(protrain_error *error) {
  if (error == NULL) return;
  fprintf(stderr, "consumer: %s\n", protrain_error_text(error));
  protrain_error_destroy(error);
  exit(1);
}

int main(int argc, char **argv) {
  const int64_t dims[2] = {kBatch, kSequence};
  int64_t tokens[kTokens];
  float losses[2];
  protrain_options *options;
  protrain_session *session;
  if (argc != 2) return 2;
  for (int i = 0; i < kTokens; ++i) tokens[i] = i * 7 % 256;
  check(protrain_options_create(&options));
  check(protrain_options_set(options, "dim", "batch=2"));
  check(protrain_options_set(options, "dim", "sequence=16"));
  check(protrain_session_create(options, argv[1], &session));
  check(protrain_session_set_input(session, "input_ids", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens));
  check(protrain_session_set_input(session, "labels", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens));
  for (int step = 0; step < 2; ++step) check(protrain_step(session, &losses[step]));
  protrain_session_destroy(session);
  protrain_options_destroy(options);
  printf("%s: %a %a\n", protrain_version(), losses[0], losses[1]);
  return losses[1] < losses[0] ? 0 : 1;
}
