// Calls the library for a fuzz target. An Error is a valid answer. An internal error, another exception or a wrong
// result shows a bug, and ends the program.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

// The function that each target defines. The main of libFuzzer or of replay.cpp calls it with each input.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

namespace protrain::fuzz {

// Reports that the fuzzer has found a bug. Ends the program, so that the fuzzer keeps the input.
[[noreturn]] inline void find(const std::string &what) {
  std::fprintf(stderr, "found: %s\n", what.c_str());
  std::abort();
}

inline void expect(bool holds, const char *what) {
  if (!holds) find(what);
}

// Calls `body` and returns the Error that it throws, if any. Reports a bug for an internal error or another exception.
// If the environment has PROTRAIN_FUZZ_SAY, prints each Error.
template <typename Body>
std::optional<Error> answer(const Body &body) {
  static const bool says = std::getenv("PROTRAIN_FUZZ_SAY") != nullptr;
  try {
    body();
  } catch (const Error &error) {
    if (says) std::fprintf(stderr, "  %s: %s\n", error.subject.c_str(), error.text.c_str());
    if (error.code == Code::internal) find(error.subject + ": " + error.text);
    return error;
  } catch (const std::exception &other) {
    find(std::string("an exception that is no Error: ") + other.what());
  }
  return std::nullopt;
}

inline std::string_view text_of(const std::uint8_t *data, std::size_t size) {
  return {reinterpret_cast<const char *>(data), size};
}

}  // namespace protrain::fuzz
