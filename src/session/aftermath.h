// Aftermath: the state of a session after a failed call. An error carries facts about the failure (base/error.h). Only
// this file decides what these facts mean for the session.
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
  if (facts.state_broken || facts.device_gone || facts.channel_broken) return Aftermath::lost;
  return facts.state_touched || facts.sums_touched ? Aftermath::half_applied : Aftermath::unchanged;
}

// Returns the aftermath of the exception being handled. std::bad_alloc leaves everything unchanged. After any other
// foreign exception the state is unknown, so the session is lost.
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
