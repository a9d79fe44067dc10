// Smart pointers for the library's objects, and exceptions for its errors.
#pragma once

#include <protrain.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace tool {

// An error. Its sentence goes to stderr, and the command returns 1.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An error that a call of the library returned.
struct LibraryFailure : Failure {
  explicit LibraryFailure(const protrain_error *error, const std::string &hint = "")
      : Failure(protrain_error_text(error) + hint),
        code(protrain_error_code(error)),
        subject(protrain_error_subject(error)),
        usable(protrain_error_usable(error) != 0) {}

  // True if this is the error of an evaluation whose batch has no label that counts.
  bool counts_nothing() const { return code == PROTRAIN_ERROR_NONFINITE && subject == "targets"; }

  protrain_code code;
  std::string subject;
  bool usable;  // the session of the failed call
};

// A wrong command line. Its sentence goes to stderr, and the command returns 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Destroy {
  void operator()(protrain_error *error) const { protrain_error_destroy(error); }
  void operator()(protrain_options *options) const { protrain_options_destroy(options); }
  void operator()(protrain_session *session) const { protrain_session_destroy(session); }
};
using Options = std::unique_ptr<protrain_options, Destroy>;
using Session = std::unique_ptr<protrain_session, Destroy>;

inline void check(protrain_error *error) {
  const std::unique_ptr<protrain_error, Destroy> owner(error);
  if (error != nullptr) throw LibraryFailure(error);
}

template <typename Exception>
void check(protrain_error *error) {
  const std::unique_ptr<protrain_error, Destroy> owner(error);
  if (error != nullptr) throw Exception(protrain_error_text(error));
}

// Returns the value of an option; "" if it has none.
inline std::string value_of(const Options &options, const char *key) {
  const char *value = nullptr;
  check(protrain_options_get(options.get(), key, &value));
  return value;
}

inline Session create_session(const Options &options, const std::string &model) {
  protrain_session *session = nullptr;
  check(protrain_session_create(options.get(), model.c_str(), &session));
  return Session(session);
}

}  // namespace tool
