/* A library that is preloaded before libprotrain and makes errors of every code, even of codes that no test can
 * provoke. protrain_options_set(options, "every_code", "17") fails with code 17, text "text of 17" and subject "subject
 * of 17". protrain_error_usable() is 1 for odd codes. protrain_options_get(options, "every_code", &value) returns the
 * number of these errors that are not destroyed yet. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <protrain.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REAL(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))

struct fake {
  int code;
  char text[32], subject[32];
};
static struct fake *fakes[64]; /* not destroyed yet */

static struct fake **find(const void *error) {
  for (int i = 0; i < 64; ++i)
    if (fakes[i] == error) return &fakes[i];
  return NULL;
}

static const struct fake *fake_of(const protrain_error *error) { return error && find(error) ? *find(error) : NULL; }

protrain_error *protrain_options_set(protrain_options *options, const char *key, const char *value) {
  if (strcmp(key, "every_code") != 0) return REAL(protrain_options_set)(options, key, value);
  struct fake **place = find(NULL);
  if (place == NULL) abort(); /* 64 errors were not destroyed */
  *place = malloc(sizeof **place);
  (*place)->code = atoi(value);
  snprintf((*place)->text, sizeof(*place)->text, "text of %s", value);
  snprintf((*place)->subject, sizeof(*place)->subject, "subject of %s", value);
  return (protrain_error *)*place;
}

protrain_error *protrain_options_get(protrain_options *options, const char *key, const char **value) {
  static char living[16];
  if (strcmp(key, "every_code") != 0) return REAL(protrain_options_get)(options, key, value);
  int count = 0;
  for (int i = 0; i < 64; ++i) count += fakes[i] != NULL;
  snprintf(living, sizeof living, "%d", count);
  *value = living;
  return NULL;
}

protrain_code protrain_error_code(const protrain_error *error) {
  const struct fake *fake = fake_of(error);
  return fake ? (protrain_code)fake->code : REAL(protrain_error_code)(error);
}

const char *protrain_error_text(const protrain_error *error) {
  const struct fake *fake = fake_of(error);
  return fake ? fake->text : REAL(protrain_error_text)(error);
}

const char *protrain_error_subject(const protrain_error *error) {
  const struct fake *fake = fake_of(error);
  return fake ? fake->subject : REAL(protrain_error_subject)(error);
}

int protrain_error_usable(const protrain_error *error) {
  const struct fake *fake = fake_of(error);
  return fake ? fake->code % 2 : REAL(protrain_error_usable)(error);
}

void protrain_error_destroy(protrain_error *error) {
  if (fake_of(error) == NULL) {
    REAL(protrain_error_destroy)(error);
    return;
  }
  *find(error) = NULL;
  free(error);
}
