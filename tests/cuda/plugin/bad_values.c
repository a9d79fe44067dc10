/* If a kernel on an asynchronous device refuses an input value, the call fails once, and the session is unchanged. */
#include "../../api/check.h"

static protrain_session *session_of(int batches) {
  protrain_options *options = gpt2_options();
  OK(protrain_options_set(options, "device", "cuda:0"));
  if (batches > 1) OK(protrain_options_set(options, "accumulation", "2"));
  return gpt2_session(options);
}

static float trained(protrain_session *session, int calls) {
  float loss = 0;
  set_inputs(session);
  for (int i = 0; i < calls; ++i) OK(protrain_step(session, &loss));
  return loss;
}

static void fails_with_a_token_that_there_is_not(protrain_session *session) {
  const int64_t dims[2] = {kBatch, kSequence};
  int64_t tokens[kTokens] = {0};
  float loss = 0;
  tokens[5] = 1 << 20;
  OK(protrain_session_set_input(session, "input_ids", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens));
  FAILS(protrain_step(session, &loss), PROTRAIN_ERROR_ARG, NULL);
}

int main(void) {
  for (int batches = 1; batches <= 2; ++batches) {
    protrain_session *spared = session_of(batches), *session = session_of(batches);
    CHECK(trained(session, batches) == trained(spared, batches));
    fails_with_a_token_that_there_is_not(session); /* this step is issued, ... */
    CHECK(trained(session, 2 * batches) == trained(spared, 2 * batches));
    fails_with_a_token_that_there_is_not(session); /* ... and this one replayed */
    CHECK(trained(session, batches) == trained(spared, batches));
    if (batches > 1) { /* the second batch of a step fails: the step starts again with the first */
      trained(session, 1);
      fails_with_a_token_that_there_is_not(session);
      CHECK(trained(session, 2) == trained(spared, 2));
    }
    protrain_session_destroy(session);
    protrain_session_destroy(spared);
  }
  return 0;
}
