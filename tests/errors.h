// Turns a thrown error into a value.
#pragma once

#include "base/error.h"

namespace protrain::test {

// Returns the Error that `call` throws; one with Code::ok if it throws none.
template <typename Call>
Error error_of(const Call &call) {
  try {
    call();
  } catch (const Error &error) {
    return error;
  }
  return Error(Code::ok, "", "");
}

template <typename Call>
Code code_of(const Call &call) {
  return error_of(call).code;
}

}  // namespace protrain::test
