// A channel over MPI. The ranks are those of MPI_COMM_WORLD.
#pragma once

#include <mpi.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/channel.h"

namespace protrain::comm::mpi {

// No call of MPI waits here: every exchange is begun and then polled, so that a deadline or another rank's abort() can
// end it. A mutex serializes all calls of MPI in the process, so a host program may start MPI with
// MPI_THREAD_SERIALIZED.
class MpiChannel final : public Channel {
 public:
  // Starts MPI unless the host program did.
  explicit MpiChannel(const ChannelRequest &request);
  ~MpiChannel() override;
  MpiChannel(const MpiChannel &) = delete;
  MpiChannel &operator=(const MpiChannel &) = delete;

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override;
  void abort(const std::string &reason) noexcept override;
  void throw_if_failed() override;

 private:
  // A message under way.
  struct Message {
    MPI_Request request;
    int rank;
    bool receives;
  };

  // The caller of the next four functions holds mpi_mutex.
  void begin(std::span<const Send> sends, std::span<const Receive> receives);
  void remove_messages_that_are_over();
  void require_no_abort();
  void break_with(Error error);

  void wait();
  MPI_Comm communicator_of_all(std::chrono::steady_clock::time_point deadline) const;

  MPI_Comm data_ = MPI_COMM_NULL, control_ = MPI_COMM_NULL;
  int rank_ = 0, ranks_ = 1;
  std::chrono::milliseconds timeout_;
  std::vector<Message> messages_;
  std::string &reason_;          // of an abort; sent without being awaited
  std::optional<Error> broken_;  // the channel's first error
};

}  // namespace protrain::comm::mpi
