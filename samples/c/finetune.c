/* Fine-tunes a language model on the bytes of a text file, within a memory budget. Saves a checkpoint half-way and
 * resumes from it.
 *
 *     finetune MODEL.onnx TEXT STEPS MEMORY DIRECTORY
 *
 * The model is any ONNX file with inputs `input_ids` and `labels` (int64, batch x sequence), a vocabulary of at least
 * 256 tokens, and one scalar output: the next-token loss, for which the graph itself shifts the labels. */
#include <errno.h>
#include <inttypes.h>
#include <protrain.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBatch = 8, kSequence = 64, kTokens = kBatch * kSequence };

static void fail(const char *text) {
  fprintf(stderr, "finetune: %s\n", text);
  exit(1);
}

/* Prints the error and exits. A program that continues must destroy the error. */
static void check(protrain_error *error) {
  if (error != NULL) fail(protrain_error_text(error));
}

static FILE *open_file(const char *path, const char *mode) {
  FILE *file = fopen(path, mode);
  if (file == NULL) {
    fprintf(stderr, "finetune: %s: %s\n", path, strerror(errno));
    exit(1);
  }
  return file;
}

static protrain_session *open_model(const char *path, const char *memory, const char *directory, const char *resume) {
  protrain_options *options = NULL;
  protrain_session *session = NULL;
  check(protrain_options_create(&options));
  check(protrain_options_set(options, "dim", "batch=8"));
  check(protrain_options_set(options, "dim", "sequence=64"));
  check(protrain_options_set(options, "learning_rate", "1e-3"));
  check(protrain_options_set(options, "weight_decay", "0.1"));
  check(protrain_options_set(options, "memory", memory));
  check(protrain_options_set(options, "offload_dir", directory));
  if (resume != NULL) check(protrain_options_set(options, "resume", resume));
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
    if (byte == EOF) fail("there is nothing to read in the text");
    tokens[i] = byte;
  }
}

/* The bits of a float. The run's file holds bits, so two equal runs write equal files. */
static uint32_t bits(float value) {
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  return word;
}

/* Trains steps first to last of `steps`, on the text from its present position. */
static void train(protrain_session *session, FILE *text, FILE *run, int first, int last, int steps) {
  static const int64_t dims[2] = {kBatch, kSequence};
  int64_t tokens[kTokens];
  for (int step = first; step <= last; ++step) {
    float loss = 0;
    double norm = 0;
    next_batch(text, tokens);
    check(protrain_session_set_input(session, "input_ids", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens));
    check(protrain_session_set_input(session, "labels", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens));
    check(protrain_session_set_learning_rate(session, 1e-3 * (1.0 - 0.9 * step / steps)));
    check(protrain_step(session, &loss));
    check(protrain_session_grad_norm(session, &norm));
    fprintf(run, "{\"step\":%d,\"loss_bits\":\"%08" PRIx32 "\",\"grad_norm_bits\":\"%08" PRIx32 "\"}\n", step,
            bits(loss), bits((float)norm));
    if (step == 1 || step % 10 == 0) printf("step %d  loss %.4f\n", step, loss);
  }
}

int main(int argc, char **argv) {
  const int steps = argc == 6 ? atoi(argv[3]) : 0;
  if (steps < 1) {
    fprintf(stderr, "usage: finetune MODEL.onnx TEXT STEPS MEMORY DIRECTORY\n");
    return 2;
  }
  const char *model = argv[1], *memory = argv[4], *directory = argv[5];
  char path[4096];
  FILE *text = open_file(argv[2], "rb");
  snprintf(path, sizeof path, "%s/run.jsonl", directory);
  FILE *run = open_file(path, "w");

  protrain_session *session = open_model(model, memory, directory, NULL);
  train(session, text, run, 1, steps / 2, steps);
  check(protrain_session_save(session, directory));
  uint64_t taken = 0; /* the checkpoint's folder is named after it */
  check(protrain_session_step_count(session, &taken));
  protrain_session_destroy(session);

  /* This could be another process on another day. The checkpoint holds everything except inputs and options. */
  snprintf(path, sizeof path, "%s/step-%010" PRIu64, directory, taken);
  session = open_model(model, memory, directory, path);
  train(session, text, run, steps / 2 + 1, steps, steps);
  snprintf(path, sizeof path, "%s/trained.onnx", directory);
  check(protrain_session_export(session, path));
  protrain_session_destroy(session);
  fclose(text);
  if (fclose(run) != 0) fail("run.jsonl could not be written");
  return 0;
}
