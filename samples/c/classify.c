/* Trains a classifier of texts: which of several files does a window of bytes come from? Every fifth window is held
 * out. After each pass over the others, the program evaluates the model on the held-out ones and saves it if it is the
 * best so far. It stops after three passes without a better one, and exports the best.
 *
 *     classify MODEL.onnx DIRECTORY TEXT TEXT ...
 *
 * The model has an input `tokens` (int64, batch x 64) of bytes and an output `logits` (batch x classes), one class for
 * each text. It has no loss; the options add one. */
#include <errno.h>
#include <inttypes.h>
#include <protrain.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBatch = 32, kLength = 64, kPatience = 3, kMostPasses = 40, kMostClasses = 16 };

typedef struct {
  int64_t (*tokens)[kLength];
  int64_t *labels;
  size_t count;
} samples_t;

static void fail(const char *text) {
  fprintf(stderr, "classify: %s\n", text);
  exit(1);
}

/* Prints the error and exits. A program that continues must destroy the error. */
static void check(protrain_error *error) {
  if (error != NULL) fail(protrain_error_text(error));
}

static void add(samples_t *samples, const unsigned char *bytes, int64_t label) {
  samples->tokens = realloc(samples->tokens, (samples->count + 1) * sizeof *samples->tokens);
  samples->labels = realloc(samples->labels, (samples->count + 1) * sizeof *samples->labels);
  if (samples->tokens == NULL || samples->labels == NULL) fail("there is no memory for the texts");
  for (int i = 0; i < kLength; ++i) samples->tokens[samples->count][i] = bytes[i];
  samples->labels[samples->count++] = label;
}

static void read_text(const char *path, int64_t label, samples_t *train, samples_t *held_out) {
  unsigned char bytes[kLength];
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    fprintf(stderr, "classify: %s: %s\n", path, strerror(errno));
    exit(1);
  }
  for (int window = 0; fread(bytes, 1, kLength, file) == kLength; ++window)
    add(window % 5 == 4 ? held_out : train, bytes, label);
  fclose(file);
}

static protrain_session *open_model(const char *path, const char *resume) {
  protrain_options *options = NULL;
  protrain_session *session = NULL;
  check(protrain_options_create(&options));
  check(protrain_options_set(options, "dim", "batch=32"));
  check(protrain_options_set(options, "loss", "cross_entropy"));
  check(protrain_options_set(options, "loss_output", "logits"));
  check(protrain_options_set(options, "keep_outputs", "logits"));
  check(protrain_options_set(options, "learning_rate", "3e-3"));
  if (resume != NULL) check(protrain_options_set(options, "resume", resume));
  check(protrain_session_create(options, path, &session));
  protrain_options_destroy(options);
  return session;
}

/* Sets the samples of a batch. Each pass has an order of its own. Every sample comes once: multiples of 7919 modulo the
 * count differ from each other, because 7919 is prime, unless it divides the count. */
static void set_batch(protrain_session *session, const samples_t *samples, size_t batch, size_t pass) {
  static const int64_t dims[2] = {kBatch, kLength};
  int64_t tokens[kBatch][kLength], labels[kBatch];
  for (size_t row = 0; row < kBatch; ++row) {
    const size_t at = ((batch * kBatch + row) * 7919 + pass * 104729) % samples->count;
    memcpy(tokens[row], samples->tokens[at], sizeof tokens[row]);
    labels[row] = samples->labels[at];
  }
  check(protrain_session_set_input(session, "tokens", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens));
  check(protrain_session_set_input(session, "labels", PROTRAIN_INT64, dims, 1, labels, sizeof labels));
}

/* Returns how many samples of the present batch have their largest logit at their label. */
static size_t count_right(protrain_session *session, const samples_t *samples, size_t batch, size_t classes) {
  float logits[kBatch * kMostClasses];
  size_t right = 0;
  check(protrain_predict(session));
  check(protrain_session_output_read(session, "logits", PROTRAIN_FLOAT32, logits, kBatch * classes * sizeof *logits));
  for (size_t row = 0; row < kBatch; ++row) {
    size_t largest = 0;
    for (size_t i = 1; i < classes; ++i)
      if (logits[row * classes + i] > logits[row * classes + largest]) largest = i;
    right += (int64_t)largest == samples->labels[(batch * kBatch + row) * 7919 % samples->count];
  }
  return right;
}

int main(int argc, char **argv) {
  const size_t classes = argc > 3 ? (size_t)argc - 3 : 0;
  if (classes < 2 || classes > kMostClasses) {
    fprintf(stderr, "usage: classify MODEL.onnx DIRECTORY TEXT TEXT ...\n");
    return 2;
  }
  const char *model = argv[1], *directory = argv[2];
  samples_t train = {NULL, NULL, 0}, held_out = {NULL, NULL, 0};
  for (size_t i = 0; i < classes; ++i) read_text(argv[3 + i], (int64_t)i, &train, &held_out);
  if (held_out.count < kBatch) fail("the texts are too short");

  protrain_session *session = open_model(model, NULL);
  char best[4096] = "";
  float best_loss = 0;
  for (size_t pass = 1, without = 0; pass <= kMostPasses && without < kPatience; ++pass) {
    float loss = 0;
    for (size_t batch = 0; batch < train.count / kBatch; ++batch) {
      set_batch(session, &train, batch, pass);
      check(protrain_step(session, &loss));
    }
    const size_t batches = held_out.count / kBatch;
    double sum = 0;
    size_t right = 0;
    for (size_t batch = 0; batch < batches; ++batch) {
      set_batch(session, &held_out, batch, 0);
      check(protrain_eval(session, &loss));
      sum += loss;
      right += count_right(session, &held_out, batch, classes);
    }
    const float mean = (float)(sum / (double)batches);
    printf("pass %zu  loss %.4f  accuracy %.3f\n", pass, mean, (double)right / (double)(batches * kBatch));
    ++without;
    if (best[0] != 0 && mean >= best_loss) continue;
    uint64_t steps = 0; /* the checkpoint's folder is named after it */
    check(protrain_session_save(session, directory));
    check(protrain_session_step_count(session, &steps));
    snprintf(best, sizeof best, "%s/step-%010" PRIu64, directory, steps);
    best_loss = mean;
    without = 0;
  }
  protrain_session_destroy(session);

  char path[4096];
  snprintf(path, sizeof path, "%s/classifier.onnx", directory);
  session = open_model(model, best);
  check(protrain_session_export(session, path));
  protrain_session_destroy(session);
  free(train.tokens), free(train.labels), free(held_out.tokens), free(held_out.labels);
  return 0;
}
