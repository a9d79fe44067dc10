// Aftermath: the state of a session after a failed call. Lower rooms state facts (base/error.h); only this
// file decides what they mean.
#pragma once

#include <cstdint>
#include <new>

#include "base/error.h"

namespace protrain::session {

enum class Aftermath : std::uint8_t {
  unchanged,     // nothing happened
  half_applied,  // some parameters took the step and others did not, or sums are useless; still usable
  lost,          // only destroy makes sense
};

inline Aftermath aftermath_of(const Facts &facts) {
  if (facts.state_broken || facts.device_gone) return Aftermath::lost;
  return facts.state_touched || facts.sums_touched ? Aftermath::half_applied : Aftermath::unchanged;
}

// The aftermath of the exception being handled. A lack of memory alone leaves everything unchanged. Nobody knows what
// other foreign exceptions leave.
inline Aftermath aftermath_of_exception() noexcept {
  try {
    throw;
  } catch (const Error &error) {
    return aftermath_of(error.facts);
  } catch (const std::bad_alloc &) {
    return Aftermath::unchanged;
  } catch (...) {
    return Aftermath::lost;
  }
}

}  // namespace protrain::session
