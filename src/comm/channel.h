// Channel: how the ranks of a session reach each other. A rank is one process of a group that trains a model together.
// A channel moves bytes between ranks and never computes. Its transport is MPI, Gloo, NCCL or, with one rank, nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace protrain::comm {

// Bytes that go to another rank.
struct Send {
  int rank;
  const std::byte *data;
  std::uint64_t bytes;
};

// Bytes that come from another rank.
struct Receive {
  int rank;
  std::byte *data;
  std::uint64_t bytes;
};

// Only one thread at a time may use a channel, but any thread may call abort() at any time. After the first error the
// channel is broken: every further call fails with that error, and only a new channel brings the ranks together again.
class Channel {
 public:
  virtual ~Channel() = default;

  virtual int rank() const = 0;  // 0 ... ranks() - 1
  virtual int ranks() const = 0;

  // Carries out all sends and receives. Returns when the sent memory may be changed again and all messages to this rank
  // have arrived. Every rank must call exchange() the same number of times. Each Send needs a matching Receive in the
  // same call of the other rank: between two ranks, messages have the same sizes in the same order. No Send or Receive
  // may name this rank itself.
  // Code::peer if another rank failed or left, Code::timeout if one did not answer in time. The error's subject names
  // the rank: "rank 3".
  virtual void exchange(std::span<const Send> sends, std::span<const Receive> receives) = 0;

  // Breaks the channel and tells the other ranks why, so that they do not wait for this one. Their calls fail with
  // Code::peer and this text.
  virtual void abort(const std::string &reason) noexcept = 0;

  // If the channel is broken, throws the error that broke it. If another rank has aborted, throws Code::peer. Exchanges
  // no messages, so a rank can call this function while it waits for something else.
  virtual void throw_if_failed() = 0;
};

enum class Transport : std::uint8_t { single, mpi, gloo };

// A rank's request to open a channel. The rendezvous says where the ranks meet: in a folder if it contains a '/', else
// at HOST:PORT, where rank 0 listens until all ranks have met. PORT must be free on rank 0's machine, and HOST is the
// name or address by which the other ranks reach this machine.
struct ChannelRequest {
  Transport transport = Transport::single;
  int rank = 0, ranks = 1;              // for Gloo; under MPI the launcher gives them
  std::string rendezvous;               // for Gloo: HOST:PORT, or a folder that all ranks share, new for each group
  std::chrono::milliseconds timeout{};  // of every exchange, and of the meeting at the start
};

// Opens a channel and returns when all ranks have met. Code::arg if the request makes no sense or another session has
// met in the folder, Code::unsupported or Code::version if the transport's plugin cannot be used, Code::timeout if not
// all ranks came in time, Code::peer if a rank gave up earlier.
std::unique_ptr<Channel> open(const ChannelRequest &request);

// A rank's request for a channel between GPUs.
struct GpuRequest {
  Channel &hosts;                       // between the same ranks; it must outlive the new channel
  std::string cuda_pci_bus_id;          // of the rank's GPU; "": the rank has none that NCCL reaches
  std::chrono::milliseconds timeout{};  // of every exchange, and of the meeting at the start
};

// Opens a channel of NCCL, whose messages lie in the memory of GPUs. Every rank must call it. abort() of this channel
// also aborts `hosts`, and a failure of `hosts` also ends an exchange of this channel.
// Code::unsupported, on every rank, if a rank cannot use NCCL or if two ranks share a GPU; `hosts` then stays usable.
std::unique_ptr<Channel> open_between_gpus(const GpuRequest &request);

}  // namespace protrain::comm
