/* Shared by the C tests: a check that prints its line and fails the program, and sessions of the small GPT-2. */
#ifndef PROTRAIN_TESTS_API_CHECK_H
#define PROTRAIN_TESTS_API_CHECK_H

#include <protrain.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

/* Checks that the call succeeds. */
#define OK(call) expect((call), PROTRAIN_OK, NULL, __FILE__, __LINE__)
/* Checks that the call fails with this code and this subject (NULL: with any subject). */
#define FAILS(call, code, subject) expect((call), (code), (subject), __FILE__, __LINE__)

void expect(protrain_error *error, protrain_code code, const char *subject, const char *file, int line);

enum { kBatch = 2, kSequence = 32, kTokens = kBatch * kSequence };

protrain_options *gpt2_options(void);
protrain_session *gpt2_session(protrain_options *options); /* destroys the options */
void set_inputs(protrain_session *session);
const char *gpt2_path(void);
void remember(const char *json_line, void *user); /* a log callback: copies each line to the 256 characters at `user` */

/* The tests, each run by `api_test NAME`. */
void test_life(void);
void test_parameters(void);
void test_save(void);
void test_misuse(void);
void test_errors(void);
void test_threads(void);
void test_plan(void);
void test_host(void);
void test_exit(void);

#endif
