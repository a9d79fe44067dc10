#include "rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "commands.h"

namespace tool {

namespace {

// True if other ranks get the same error, so that rank 0 says it. If rank 0 is the one that failed, it may be gone, and
// rank 1 speaks for all.
bool is_said_by_another(const Rank &rank, const LibraryFailure &failure) {
  constexpr protrain_code kCommon[] = {PROTRAIN_ERROR_PEER, PROTRAIN_ERROR_TIMEOUT, PROTRAIN_ERROR_NONFINITE,
                                       PROTRAIN_ERROR_STATE, PROTRAIN_ERROR_MISMATCH};
  const bool common = std::ranges::find(kCommon, failure.code) != std::end(kCommon);
  const std::uint64_t speaker = failure.subject == "rank 0" ? 1 : 0;
  return common && rank.number != 0 && rank.number != speaker;
}

}  // namespace

Rank rank_of(protrain_session *session) {
  Rank rank;
  check(protrain_session_rank(session, &rank.number));
  check(protrain_session_rank_count(session, &rank.count));
  return rank;
}

int give_up(const Rank &rank, const std::exception &failure) {
  const auto *common = dynamic_cast<const LibraryFailure *>(&failure);
  if (common == nullptr || !is_said_by_another(rank, *common))
    fmt::print(stderr, "protrain: {}{}\n", rank.leads() ? "" : fmt::format("rank {}: ", rank.number), failure.what());
  if (common != nullptr) return kFailed;
  std::fflush(nullptr);
  std::_Exit(kFailed);
}

}  // namespace tool
