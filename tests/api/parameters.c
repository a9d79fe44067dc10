/* Parameters and gradients by name, the learning rate, and options that choose what is trained. */
#include <math.h>

#include "check.h"

static const char kWeight[] = "m.transformer.h.0.attn.c_attn.weight";
static const char kFrozen[] = "m.transformer.wpe.weight";

static size_t elements_of(protrain_session *session, const char *wanted) {
  size_t count = 0;
  OK(protrain_session_parameter_count(session, &count));
  for (size_t i = 0; i < count; ++i) {
    const char *name = NULL;
    size_t elements = 0, rank = 0, product = 1;
    int64_t dims[8];
    OK(protrain_session_parameter_name(session, i, &name));
    if (strcmp(name, wanted) != 0) continue;
    OK(protrain_session_parameter_elements(session, i, &elements));
    OK(protrain_session_parameter_shape(session, i, dims, 8, &rank));
    for (size_t d = 0; d < rank; ++d) product *= (size_t)dims[d];
    CHECK(product == elements);
    return elements;
  }
  fprintf(stderr, "no parameter %s\n", wanted);
  exit(1);
}

static float *read_values(protrain_session *session, const char *name, size_t *elements) {
  float *values;
  *elements = elements_of(session, name);
  values = malloc(*elements * sizeof *values);
  OK(protrain_session_parameter_read(session, name, values, *elements));
  return values;
}

/* Returns 1 if the parameter's values differ from `before`. */
static int changed(protrain_session *session, const char *name, const float *before) {
  size_t elements;
  float *now = read_values(session, name, &elements);
  const int differs = memcmp(now, before, elements * sizeof *now) != 0;
  free(now);
  return differs;
}

static void steps_change_what_is_trained_and_nothing_else(protrain_session *session) {
  size_t elements;
  float loss = 0;
  float *weight = read_values(session, kWeight, &elements), *frozen = read_values(session, kFrozen, &elements);
  double rate = -1;
  OK(protrain_session_set_learning_rate(session, 0));
  OK(protrain_session_learning_rate(session, &rate));
  CHECK(rate == 0);
  OK(protrain_step(session, &loss));
  CHECK(!changed(session, kWeight, weight));
  OK(protrain_session_set_learning_rate(session, 0.01));
  OK(protrain_step(session, &loss));
  CHECK(changed(session, kWeight, weight));
  CHECK(!changed(session, kFrozen, frozen));
  free(weight);
  free(frozen);
}

static void written_weights_are_read_back_and_used(protrain_session *session) {
  size_t elements;
  float before = 0, after = 0, back = 0;
  float *weight = read_values(session, kWeight, &elements), *other = malloc(elements * sizeof *other);
  for (size_t i = 0; i < elements; ++i) other[i] = weight[i] * 2;
  OK(protrain_eval(session, &before));
  OK(protrain_session_parameter_write(session, kWeight, other, elements));
  CHECK(changed(session, kWeight, weight) && !changed(session, kWeight, other));
  OK(protrain_eval(session, &after));
  CHECK(after != before);
  OK(protrain_session_parameter_write(session, kWeight, weight, elements));
  OK(protrain_eval(session, &back));
  CHECK(back == before);
  free(weight);
  free(other);
}

static void all_parameters_are_one_buffer(protrain_session *session) {
  size_t count = 0, all = 0, at = 0;
  float before = 0, after = 0, *flat, *other;
  OK(protrain_session_parameter_count(session, &count));
  OK(protrain_session_flat_parameters_elements(session, &all));
  flat = malloc(all * sizeof *flat);
  other = malloc(all * sizeof *other);
  OK(protrain_session_flat_parameters_read(session, flat, all));
  for (size_t i = 0; i < count; ++i) {
    const char *lent = NULL;
    char name[128];
    size_t elements;
    float *values;
    OK(protrain_session_parameter_name(session, i, &lent));
    strcpy(name, lent);
    values = read_values(session, name, &elements);
    CHECK(at + elements <= all && memcmp(flat + at, values, elements * sizeof *values) == 0);
    at += elements;
    free(values);
  }
  CHECK(at == all);

  OK(protrain_eval(session, &before));
  for (size_t i = 0; i < all; ++i) other[i] = flat[i] / 2;
  OK(protrain_session_flat_parameters_write(session, other, all));
  OK(protrain_eval(session, &after));
  CHECK(after != before);
  OK(protrain_session_flat_parameters_write(session, flat, all));
  OK(protrain_session_flat_parameters_read(session, other, all));
  CHECK(memcmp(flat, other, all * sizeof *flat) == 0);
  OK(protrain_eval(session, &after));
  CHECK(after == before);
  FAILS(protrain_session_flat_parameters_read(session, flat, all - 1), PROTRAIN_ERROR_SHAPE, "values");
  FAILS(protrain_session_flat_parameters_write(session, flat, 0), PROTRAIN_ERROR_SHAPE, "values");
  free(flat);
  free(other);
}

static void kept_gradients_are_finite_and_within_the_norm(protrain_session *session) {
  const size_t elements = elements_of(session, kWeight);
  float *gradient = malloc(elements * sizeof *gradient);
  double norm = 0, sum = 0;
  OK(protrain_session_grad_read(session, kWeight, gradient, elements));
  OK(protrain_session_grad_norm(session, &norm));
  for (size_t i = 0; i < elements; ++i) sum += (double)gradient[i] * gradient[i];
  CHECK(sum > 0 && sqrt(sum) < norm);
  free(gradient);
}

void test_parameters(void) {
  protrain_options *options = gpt2_options();
  protrain_session *session;
  OK(protrain_options_set(options, "keep_gradients", "*.c_attn.*"));
  OK(protrain_options_set(options, "frozen", "*.wpe.*"));
  session = gpt2_session(options);
  set_inputs(session);
  steps_change_what_is_trained_and_nothing_else(session);
  written_weights_are_read_back_and_used(session);
  all_parameters_are_one_buffer(session);
  kept_gradients_are_finite_and_within_the_norm(session);
  FAILS(protrain_session_grad_read(session, "m.transformer.h.0.ln_1.weight", (float[64]){0}, 64), PROTRAIN_ERROR_ARG,
        "m.transformer.h.0.ln_1.weight");
  protrain_session_destroy(session);
}
