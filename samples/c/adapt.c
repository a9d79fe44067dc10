/* Trains low-rank adapters of a language model on a text, compares the model with its base, saves the adapters in the
 * form of Hugging Face's PEFT, and writes the merged model.
 *
 *     adapt MODEL.onnx TEXT STEPS PATTERN DIRECTORY
 *
 * PATTERN names the weights to adapt, such as '*.c_attn.weight'. */
#include <protrain.h>
#include <stdio.h>
#include <stdlib.h>

enum { kBatch = 4, kSequence = 32 };

static void check(protrain_error *error) {
  if (error == NULL) return;
  fprintf(stderr, "adapt: %s\n", protrain_error_text(error)); /* the text names the subject */
  protrain_error_destroy(error);
  exit(1);
}

/* The next window of the text for each sample; a byte is a token. */
static void fill(FILE *text, int64_t *tokens) {
  for (int i = 0; i < kBatch * kSequence; ++i) {
    int byte = getc(text);
    if (byte == EOF) {
      rewind(text);
      byte = getc(text);
    }
    if (byte == EOF) {
      fprintf(stderr, "adapt: there is nothing to read in the text\n");
      exit(1);
    }
    tokens[i] = byte;
  }
}

static void train(protrain_session *session, FILE *text, int steps) {
  static int64_t tokens[kBatch * kSequence];
  const int64_t dims[2] = {kBatch, kSequence};
  for (int step = 1; step <= steps; ++step) {
    float loss = 0;
    fill(text, tokens);
    check(protrain_session_set_input(session, "input_ids", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens));
    check(protrain_session_set_input(session, "labels", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens));
    check(protrain_step(session, &loss));
    printf("step %d loss %f\n", step, loss);
  }
}

/* The last batch's losses with the adapters and without: one session has both models. */
static void compare(protrain_session *session) {
  float adapted = 0, base = 0;
  check(protrain_eval(session, &adapted));
  check(protrain_session_use_adapters(session, 0));
  check(protrain_eval(session, &base));
  check(protrain_session_use_adapters(session, 1));
  printf("adapted %f base %f\n", adapted, base);
}

int main(int argc, char **argv) {
  char path[4096];
  protrain_options *options = NULL;
  protrain_session *session = NULL;
  if (argc != 6) {
    fprintf(stderr, "usage: adapt MODEL.onnx TEXT STEPS PATTERN DIRECTORY\n");
    return 2;
  }
  FILE *text = fopen(argv[2], "rb");
  if (text == NULL) {
    perror(argv[2]);
    return 1;
  }
  check(protrain_options_create(&options));
  check(protrain_options_set(options, "dim", "batch=4"));
  check(protrain_options_set(options, "dim", "sequence=32"));
  check(protrain_options_set(options, "learning_rate", "3e-3"));
  check(protrain_options_set(options, "lora", argv[4]));
  check(protrain_options_set(options, "lora_rank", "8"));
  check(protrain_options_set(options, "lora_alpha", "16"));
  check(protrain_session_create(options, argv[1], &session));
  train(session, text, atoi(argv[3]));
  compare(session);
  snprintf(path, sizeof path, "%s/adapter", argv[5]);
  check(protrain_session_export_adapters(session, path));
  snprintf(path, sizeof path, "%s/merged.onnx", argv[5]);
  check(protrain_session_export(session, path));
  protrain_session_destroy(session);
  protrain_options_destroy(options);
  fclose(text);
  return 0;
}
