/* Functions that the C tests share. */
#include "check.h"

void expect(protrain_error *error, protrain_code code, const char *subject, const char *file, int line) {
  const int right = protrain_error_code(error) == code &&
                    (subject == NULL || strcmp(protrain_error_subject(error), subject) == 0) &&
                    strstr(protrain_error_text(error), protrain_error_subject(error)) != NULL &&
                    (error == NULL || protrain_error_text(error)[0] != '\0');
  if (!right) {
    fprintf(stderr, "%s:%d: expected code %d about '%s', got %d about '%s': %s\n", file, line, (int)code,
            subject == NULL ? "anything" : subject, (int)protrain_error_code(error), protrain_error_subject(error),
            protrain_error_text(error));
    exit(1);
  }
  protrain_error_destroy(error);
}

const char *gpt2_path(void) { return PROTRAIN_FIXTURES "/gpt2-dynamic-opset18.onnx"; }

protrain_options *gpt2_options(void) {
  protrain_options *options = NULL;
  OK(protrain_options_create(&options));
  OK(protrain_options_set(options, "dim", "batch=2"));
  OK(protrain_options_set(options, "dim", "sequence=32"));
  OK(protrain_options_set(options, "threads", "2"));
  return options;
}

protrain_session *gpt2_session(protrain_options *options) {
  protrain_session *session = NULL;
  OK(protrain_session_create(options, gpt2_path(), &session));
  CHECK(session != NULL);
  protrain_options_destroy(options);
  return session;
}

void set_inputs(protrain_session *session) {
  const int64_t dims[2] = {kBatch, kSequence};
  int64_t tokens[kTokens];
  for (int i = 0; i < kTokens; ++i) tokens[i] = (i * i * 7 + 3) % 512;
  OK(protrain_session_set_input(session, "input_ids", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens));
  OK(protrain_session_set_input(session, "labels", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens));
}

void remember(const char *json_line, void *user) {
  char *last = user;
  CHECK(strchr(json_line, '\n') == NULL);
  snprintf(last, 256, "%s", json_line);
}
