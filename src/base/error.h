// The library's only exception type, and the two functions that throw it. Any code may throw. The C functions of
// protrain.cpp, the start functions of threads and the functions that a plugin exports catch every exception.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace protrain {

// The kinds of errors. Their numbers are those of protrain_code in protrain.h (checked in protrain.cpp).
enum class Code : int {
  ok = 0,
  arg = 1,           // an argument or option is wrong
  state = 2,         // the call does not fit the object's present state
  busy = 3,          // another thread is inside the object
  forked = 4,        // the object belongs to the parent process
  version = 5,       // a file or plugin of another version
  path = 6,          // a path that may not be followed
  io = 7,            // the system refused a file operation
  nospc = 8,         // no space left where a file should grow
  format = 9,        // malformed bytes
  limit = 10,        // over a stated limit
  shape = 11,        // shapes do not fit together
  type = 12,         // element types do not fit together
  graph = 13,        // the graph is not a legal one
  unsupported = 14,  // legal, but not something this library does
  corrupt = 15,      // a checksum does not match
  mismatch = 16,     // belongs to something else
  budget = 17,       // does not fit the stated memory
  nomem = 18,        // the system refused memory
  nonfinite = 19,    // NaN or infinity where numbers must be finite
  peer = 20,         // another rank failed
  timeout = 21,      // another rank did not answer in time
  device = 22,       // the device or its driver failed
  internal = 23,     // a fault of this library
  cancelled = 24,    // protrain_session_cancel was called
};

// The effects of a failed call on the training state, the device and the channel. The code that throws the error sets
// these fields. Only session/aftermath.h decides what they mean for a session.
struct Facts {
  bool sums_touched = false;   // part of a batch is in a step's sums of gradients
  bool state_touched = false;  // some parameters took the step, others did not
  bool state_broken = false;   // parts of the state are neither the old values nor the new ones
  bool device_gone = false;    // it is unknown how far the device got
  // This rank and the others cannot exchange anything any more.
  bool channel_broken = false;
  bool operator==(const Facts &) const = default;
};

struct Error : std::exception {
  Error(Code code_, std::string subject_, std::string text_, Facts facts_ = {})
      : code(code_), subject(std::move(subject_)), text(std::move(text_)), facts(facts_) {}
  const char *what() const noexcept override { return text.c_str(); }

  Code code;
  std::string subject;  // the node, tensor, file or option concerned
  std::string text;     // one line: what was found, what was expected, what to do
  Facts facts;
};

// Formats the text and throws it as an Error. The function is no template, so each call of fail() or require() compiles
// to little code.
[[noreturn]] void throw_error(Code code, std::string_view subject, fmt::string_view text, fmt::format_args args);

template <typename... Args>
[[noreturn]] void fail(Code code, std::string_view subject, fmt::format_string<Args...> text, Args &&...args) {
  throw_error(code, subject, text, fmt::make_format_args(args...));
}

template <typename... Args>
void require(bool holds, Code code, std::string_view subject, fmt::format_string<Args...> text, Args &&...args) {
  if (!holds) throw_error(code, subject, text, fmt::make_format_args(args...));
}

}  // namespace protrain
