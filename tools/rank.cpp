#include "rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "commands.h"
#include "stop_signal.h"
#include "tell.h"

namespace tool {

namespace {

// True if rank 0 prints the same error, because all ranks have agreed on it. Ranks do not agree on an error about a
// rank that is lost or late: rank 0 may be the lost rank itself, or the cause. So every rank that notices such an error
// prints it.
bool is_said_by_rank_0(const Rank &rank, const LibraryFailure &failure) {
  constexpr protrain_code kAgreed[] = {PROTRAIN_ERROR_NONFINITE, PROTRAIN_ERROR_STATE, PROTRAIN_ERROR_MISMATCH,
                                       PROTRAIN_ERROR_CANCELLED};
  return !rank.leads() && std::ranges::find(kAgreed, failure.code) != std::end(kAgreed);
}

}  // namespace

Rank rank_of(protrain_session *session) {
  Rank rank;
  check(protrain_session_rank(session, &rank.number));
  check(protrain_session_rank_count(session, &rank.count));
  return rank;
}

bool ends_by_signal(protrain_session *session, const Rank &rank) {
  if (stop_signal() == 0 || rank.alone()) return stop_signal() != 0;
  protrain_session_cancel(session);
  return false;
}

void say(const Rank &rank, const std::exception &failure) {
  const auto *common = dynamic_cast<const LibraryFailure *>(&failure);
  if (common == nullptr || !is_said_by_rank_0(rank, *common))
    tell("protrain: {}{}\n", rank.leads() ? "" : fmt::format("rank {}: ", rank.number), failure.what());
}

int give_up(const Rank &rank, const std::exception &failure) {
  say(rank, failure);
  if (dynamic_cast<const LibraryFailure *>(&failure) != nullptr) return kFailed;
  std::fflush(nullptr);
  std::_Exit(kFailed);
}

}  // namespace tool
