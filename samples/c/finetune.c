/* Fine-tunes a language model on a text file, byte by byte.
 *
 *     finetune MODEL.onnx TEXT STEPS OUT.onnx
 *
 * The model is any ONNX file with inputs `input_ids` and `labels` (int64, batch x sequence), at least 256 tokens, and
 * a scalar output: the next-token loss, its labels shifted inside the graph. */
#include <protrain.h>
#include <stdio.h>
#include <stdlib.h>

enum { kBatch = 8, kSequence = 64, kTokens = kBatch * kSequence };

/* The four lines that every C program needs around protrain: complain and leave. */
static void check(protrain_error *error) {
  if (error == NULL) return;
  fprintf(stderr, "finetune: %s\n", protrain_error_text(error));
  protrain_error_destroy(error);
  exit(1);
}

static protrain_session *open_model(const char *path) {
  protrain_options *options = NULL;
  protrain_session *session = NULL;
  char dim[64];
  check(protrain_options_create(&options));
  snprintf(dim, sizeof dim, "batch=%d", kBatch);
  check(protrain_options_set(options, "dim", dim));
  snprintf(dim, sizeof dim, "sequence=%d", kSequence);
  check(protrain_options_set(options, "dim", dim));
  check(protrain_options_set(options, "learning_rate", "1e-3"));
  check(protrain_options_set(options, "weight_decay", "0.1"));
  check(protrain_session_create(options, path, &session));
  protrain_options_destroy(options);
  return session;
}

/* The next batch of bytes; the text begins again at its end. */
static void next_batch(FILE *text, int64_t *tokens) {
  for (int i = 0; i < kTokens; ++i) {
    int byte = fgetc(text);
    if (byte == EOF) {
      rewind(text);
      byte = fgetc(text);
    }
    tokens[i] = byte == EOF ? 0 : byte;
  }
}

int main(int argc, char **argv) {
  static const int64_t dims[2] = {kBatch, kSequence};
  int64_t tokens[kTokens];
  if (argc != 5) {
    fprintf(stderr, "usage: finetune MODEL.onnx TEXT STEPS OUT.onnx\n");
    return 2;
  }
  FILE *text = fopen(argv[2], "rb");
  if (text == NULL) {
    perror(argv[2]);
    return 1;
  }
  protrain_session *session = open_model(argv[1]);
  const int steps = atoi(argv[3]);
  for (int step = 1; step <= steps; ++step) {
    float loss = 0;
    next_batch(text, tokens);
    check(protrain_session_set_input(session, "input_ids", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens));
    check(protrain_session_set_input(session, "labels", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens));
    check(protrain_session_set_learning_rate(session, 1e-3 * (1.0 - 0.9 * step / steps)));
    check(protrain_step(session, &loss));
    if (step == 1 || step % 10 == 0) printf("step %d  loss %.4f\n", step, loss);
  }
  check(protrain_session_export(session, argv[4]));
  protrain_session_destroy(session);
  fclose(text);
  return 0;
}
