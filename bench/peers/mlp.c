/* A peer of bench/models.py: trains the MLP of 10,000 parameters in plain C, as a programmer would write it by hand.
 *
 *     mlp BATCH STEPS
 *         prints the seconds of each step, as JSON
 *
 * Layers of 64, 96, 32 and 10 features with ReLUs between, a cross entropy, AdamW, float32, one thread. Compile it with
 * -O3 -march=native -ffast-math, so that the compiler may use vectors for sums. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LAYERS = 3, PARAMETERS = 64 * 96 + 96 + 96 * 32 + 32 + 32 * 10 + 10 };
static const int WIDTHS[LAYERS + 1] = {64, 96, 32, 10};

static float weights[PARAMETERS], gradients[PARAMETERS], first_moments[PARAMETERS], second_moments[PARAMETERS];

static float drawn(void) { return (float)rand() / (float)RAND_MAX - 0.5f; }

/* The widths of a layer, and where its weights (in, out) begin among all parameters. Its biases follow them. */
typedef struct {
  int in, out, at;
} Layer;

static Layer layer_of(int number) {
  Layer layer = {WIDTHS[0], WIDTHS[1], 0};
  for (int i = 1; i <= number; ++i) {
    layer.at += layer.in * layer.out + layer.out;
    layer.in = WIDTHS[i];
    layer.out = WIDTHS[i + 1];
  }
  return layer;
}

/* y = x w + b */
static void forward(Layer layer, const float *restrict x, float *restrict y, int batch) {
  const int in = layer.in, out = layer.out;
  const float *restrict w = weights + layer.at, *b = w + in * out;
  for (int row = 0; row < batch; ++row) {
    float *of = y + row * out;
    memcpy(of, b, sizeof(float) * (size_t)out);
    for (int k = 0; k < in; ++k) {
      const float value = x[row * in + k];
      for (int o = 0; o < out; ++o) of[o] += value * w[k * out + o];
    }
  }
}

/* Adds the gradients of w and b, and writes that of x to dx if dx is not null. */
static void backward(Layer layer, const float *restrict x, const float *restrict dy, float *restrict dx, int batch) {
  const int in = layer.in, out = layer.out;
  const float *restrict w = weights + layer.at;
  float *restrict dw = gradients + layer.at, *db = dw + in * out;
  for (int row = 0; row < batch; ++row) {
    const float *of = dy + row * out;
    for (int o = 0; o < out; ++o) db[o] += of[o];
    for (int k = 0; k < in; ++k) {
      const float value = x[row * in + k];
      for (int o = 0; o < out; ++o) dw[k * out + o] += value * of[o];
    }
    if (dx == NULL) continue;
    for (int k = 0; k < in; ++k) {
      float sum = 0;
      for (int o = 0; o < out; ++o) sum += of[o] * w[k * out + o];
      dx[row * in + k] = sum;
    }
  }
}

/* Turns logits into their gradients and returns the mean cross entropy. */
static float cross_entropy(float *logits, const int *labels, int batch, int classes) {
  float loss = 0;
  for (int row = 0; row < batch; ++row) {
    float *of = logits + row * classes, largest = of[0], sum = 0;
    for (int c = 1; c < classes; ++c) largest = fmaxf(largest, of[c]);
    const float chosen = of[labels[row]] - largest;
    for (int c = 0; c < classes; ++c) sum += of[c] = expf(of[c] - largest);
    for (int c = 0; c < classes; ++c) of[c] = (of[c] / sum - (c == labels[row] ? 1.0f : 0.0f)) / (float)batch;
    loss += (logf(sum) - chosen) / (float)batch;
  }
  return loss;
}

static void adamw(int step) {
  const float rate = 1e-3f, decay = 0.01f, first = 0.9f, second = 0.999f, epsilon = 1e-8f;
  const float first_correction = 1 - powf(first, (float)step), second_correction = 1 - powf(second, (float)step);
  for (int i = 0; i < PARAMETERS; ++i) {
    first_moments[i] = first * first_moments[i] + (1 - first) * gradients[i];
    second_moments[i] = second * second_moments[i] + (1 - second) * gradients[i] * gradients[i];
    const float direction =
        first_moments[i] / first_correction / (sqrtf(second_moments[i] / second_correction) + epsilon);
    weights[i] -= rate * (direction + decay * weights[i]);
  }
}

static float step_of(float *const *values, float *const *slopes, const int *labels, int batch, int step) {
  for (int i = 0; i < LAYERS; ++i) {
    const Layer layer = layer_of(i);
    forward(layer, values[i], values[i + 1], batch);
    if (i + 1 == LAYERS) break;
    for (int j = 0; j < batch * layer.out; ++j) values[i + 1][j] = fmaxf(values[i + 1][j], 0);
  }
  const float loss = cross_entropy(values[LAYERS], labels, batch, WIDTHS[LAYERS]);

  memset(gradients, 0, sizeof gradients);
  const float *dy = values[LAYERS];
  for (int i = LAYERS - 1; i >= 0; --i) {
    const Layer layer = layer_of(i);
    backward(layer, values[i], dy, i > 0 ? slopes[i] : NULL, batch);
    if (i == 0) break;
    for (int j = 0; j < batch * layer.in; ++j) slopes[i][j] = values[i][j] > 0 ? slopes[i][j] : 0;
    dy = slopes[i];
  }
  adamw(step);
  return loss;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int count, char **words) {
  const int batch = count == 3 ? atoi(words[1]) : 0, steps = count == 3 ? atoi(words[2]) : 0;
  if (batch <= 0 || steps <= 0) return fputs("mlp BATCH STEPS\n", stderr), 1;
  float *values[LAYERS + 1], *slopes[LAYERS + 1];
  for (int layer = 0; layer <= LAYERS; ++layer) {
    const size_t bytes = sizeof(float) * (size_t)batch * (size_t)WIDTHS[layer];
    values[layer] = malloc(bytes);
    slopes[layer] = malloc(bytes);
  }
  int *labels = malloc(sizeof(int) * (size_t)batch);
  for (int i = 0; i < PARAMETERS; ++i) weights[i] = 0.2f * drawn();
  for (int i = 0; i < batch * WIDTHS[0]; ++i) values[0][i] = drawn();
  for (int i = 0; i < batch; ++i) labels[i] = rand() % WIDTHS[LAYERS];

  float loss = 0;
  printf("{\"seconds\": [");
  for (int step = 1; step <= steps; ++step) {
    const double start = now();
    loss = step_of(values, slopes, labels, batch, step);
    printf("%s%.9f", step > 1 ? ", " : "", now() - start);
  }
  printf("], \"loss\": %.6f}\n", (double)loss);
  return 0;
}
