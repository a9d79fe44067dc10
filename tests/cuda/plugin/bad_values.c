/* If a kernel on an asynchronous device refuses an input value, the call fails once, and the session is unchanged.
 * Positions are computed from the mask, so no check before the step sees that one of them is beyond the table. */
#include "../../api/check.h"

enum { kLength = 16, kElements = kBatch * kLength };

static protrain_session *session_of(int batches) {
  protrain_options *options = NULL;
  protrain_session *session = NULL;
  OK(protrain_options_create(&options));
  OK(protrain_options_set(options, "dim", "batch=2"));
  OK(protrain_options_set(options, "dim", "sequence=16"));
  OK(protrain_options_set(options, "device", "cuda:0"));
  if (batches > 1) OK(protrain_options_set(options, "accumulation", "2"));
  OK(protrain_session_create(options, PROTRAIN_FIXTURES "/families/opt-masked.torchscript13.onnx", &session));
  protrain_options_destroy(options);
  return session;
}

static void set_input(protrain_session *session, const char *name, int64_t value, int64_t sixth) {
  const int64_t dims[2] = {kBatch, kLength};
  int64_t values[kElements];
  for (int i = 0; i < kElements; ++i) values[i] = i == 5 ? sixth : value;
  OK(protrain_session_set_input(session, name, PROTRAIN_INT64, dims, 2, values, sizeof values));
}

static float trained(protrain_session *session, int calls) {
  float loss = 0;
  set_input(session, "input_ids", 3, 4);
  set_input(session, "attention_mask", 1, 1);
  set_input(session, "labels", 3, 4);
  for (int i = 0; i < calls; ++i) OK(protrain_step(session, &loss));
  return loss;
}

static void fails_with_a_position_that_there_is_not(protrain_session *session) {
  float loss = 0;
  set_input(session, "attention_mask", 1, 1 << 20);
  FAILS(protrain_step(session, &loss), PROTRAIN_ERROR_ARG, NULL);
}

int main(void) {
  for (int batches = 1; batches <= 2; ++batches) {
    protrain_session *spared = session_of(batches), *session = session_of(batches);
    CHECK(trained(session, batches) == trained(spared, batches));
    fails_with_a_position_that_there_is_not(session); /* this step is issued, ... */
    CHECK(trained(session, 2 * batches) == trained(spared, 2 * batches));
    fails_with_a_position_that_there_is_not(session); /* ... and this one replayed */
    CHECK(trained(session, batches) == trained(spared, batches));
    if (batches > 1) { /* the second batch of a step fails: the step starts again with the first */
      trained(session, 1);
      fails_with_a_position_that_there_is_not(session);
      CHECK(trained(session, 2) == trained(spared, 2));
    }
    protrain_session_destroy(session);
    protrain_session_destroy(spared);
  }
  return 0;
}
