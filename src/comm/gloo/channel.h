// A channel over Gloo, for processes that MPI does not connect. The ranks find each other through a shared folder or
// through the address of rank 0. Then they talk over TCP.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/error.h"
#include "comm/channel.h"

namespace gloo::rendezvous {
class Store;
}
namespace gloo::transport {
class UnboundBuffer;
}

namespace protrain::comm::gloo {

class Deadline;
class Mesh;

// Gloo ends every wait of this rank when a connection breaks or a deadline passes. It cannot say why another rank left,
// so a rank that aborts puts its reason into the store.
class GlooChannel final : public Channel {
 public:
  explicit GlooChannel(const ChannelRequest &request);
  ~GlooChannel() override;
  GlooChannel(const GlooChannel &) = delete;
  GlooChannel &operator=(const GlooChannel &) = delete;

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override;
  void abort(const std::string &reason) noexcept override;
  void throw_if_failed() override;

 private:
  // Returns when all ranks have met. Throws if they have not met before `deadline`.
  GlooChannel(const ChannelRequest &request, const Deadline &deadline);

  // Returns the reason for which `rank` aborted, as that rank wrote it into the store. Waits up to `wait` for this
  // text. Returns an empty optional if the text does not come in that time.
  std::optional<std::string> reason_of(int rank, std::chrono::milliseconds wait);
  void leave_reason(std::string_view reason);
  // Returns the error for an exchange with `rank` in which Gloo threw `found`: Code::timeout if `found` is a timeout
  // and the rank left no reason, else Code::peer.
  Error error_of(int rank, const std::exception &found);
  void break_with(const Error &error);

  const int rank_, ranks_;
  const std::chrono::milliseconds timeout_;
  const std::unique_ptr<::gloo::rendezvous::Store> store_;  // it lives as long as the context and the channel
  std::shared_ptr<Mesh> context_;
  std::uint64_t exchanges_ = 0;
  std::mutex mutex_;             // guards broken_
  std::optional<Error> broken_;  // the channel's first error
};

}  // namespace protrain::comm::gloo
