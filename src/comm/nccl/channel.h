// A channel over NCCL, for ranks that compute on NVIDIA's GPUs. Its messages lie in the GPUs' memory.
#pragma once

#include <nccl.h>

#include <mutex>
#include <optional>

#include "base/error.h"
#include "comm/channel.h"

namespace protrain::comm::nccl {

// Every exchange is one group of NCCL's sends and receives on a stream of its own, which the calling thread polls. The
// communicator is non-blocking, so no call of NCCL's outlasts the deadline. NCCL does not say which rank failed or why.
// So there is a second channel, between the ranks' hosts. NcclChannel asks the hosts' channel whether another rank has
// aborted, and when NcclChannel aborts, it aborts the hosts' channel too.
class NcclChannel final : public Channel {
 public:
  explicit NcclChannel(const GpuRequest &request);
  ~NcclChannel() override;
  NcclChannel(const NcclChannel &) = delete;
  NcclChannel &operator=(const NcclChannel &) = delete;

  int rank() const override { return hosts_.rank(); }
  int ranks() const override { return hosts_.ranks(); }
  // Skips messages of 0 bytes. If all messages of an exchange are skipped, the exchange waits for no rank.
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override;
  void abort(const std::string &reason) noexcept override;
  void throw_if_failed() override;

 private:
  void meet();
  void begin(std::span<const Send> sends, std::span<const Receive> receives);
  // True if NCCL has issued all that it was asked for. Throws if NCCL reports an error: Code::peer if a rank is gone,
  // else Code::device.
  bool is_issued();
  // Polls until done() is true. Throws if the deadline passes, or if another rank has aborted.
  template <typename Done>
  void poll(Done done, const char *what);
  // Makes this rank's GPU the calling thread's current one. CUDA keeps a current GPU for each thread.
  void use_gpu() const;
  void abort_communicator();
  void throw_if_broken();
  void break_with(const Error &error) noexcept;

  Channel &hosts_;
  const std::chrono::milliseconds timeout_;
  int gpu_ = 0;  // its number in this process
  cudaStream_t stream_ = nullptr;
  ncclComm_t communicator_ = nullptr;
  std::mutex mutex_;             // guards broken_
  std::optional<Error> broken_;  // the channel's first error
};

}  // namespace protrain::comm::nccl
