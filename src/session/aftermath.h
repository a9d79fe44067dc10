// Aftermath: what is left of a session after a failed call. Lower rooms state facts (base/error.h); what they mean is
// decided here alone.
#pragma once

#include <new>

#include "base/error.h"

namespace protrain::session {

// Of the exception that is being handled. Lack of memory alone leaves all as it was; of any other foreign exception
// nobody can tell.
inline Aftermath aftermath_of_exception() noexcept {
  try {
    throw;
  } catch (const Error &error) {
    return error.aftermath;
  } catch (const std::bad_alloc &) {
    return Aftermath::unchanged;
  } catch (...) {
    return Aftermath::lost;
  }
}

}  // namespace protrain::session
