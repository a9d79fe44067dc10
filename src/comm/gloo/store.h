// A store of keys and values that the ranks reach by host and port. Gloo keeps the addresses of the ranks in the store.
// A rank that aborts leaves its reason there.
#pragma once

#include <gloo/rendezvous/store.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/address.h"
#include "comm/channel.h"
#include "comm/gloo/deadline.h"

struct addrinfo;

namespace protrain::comm::gloo {

// Owns a descriptor.
class Socket {
 public:
  explicit Socket(int value = -1) : value_(value) {}
  Socket(Socket &&other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Socket() {
    if (value_ >= 0) close(value_);
  }
  int get() const { return value_; }

 private:
  int value_;
};

class Relay;

// Every rank, rank 0 too, has one connection to a relay, which lives in the process of rank 0. When a rank sets a
// value, the relay sends it to all ranks, so every rank holds all values. The reason of an abort therefore reaches the
// other ranks without a request, even if rank 0 ends right afterwards. A rank that has lost its connection to the relay
// gets errors from its store. It then learns from Gloo's own connections which rank left.
class TcpStore final : public ::gloo::rendezvous::Store {
 public:
  // Returns when the relay has let this rank in. Code::arg if rank 0 cannot listen at the rendezvous or the host is
  // unknown, Code::timeout if rank 0 cannot be reached in time.
  TcpStore(const ChannelRequest &request, const Deadline &deadline);
  ~TcpStore() override;

  // Returns when the relay has sent the value to the connected ranks, or after a second.
  void set(const std::string &key, const std::vector<char> &value) override;
  std::vector<char> get(const std::string &key) override;
  void wait(const std::vector<std::string> &keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &timeout) override;

 private:
  void reach_relay(const Address &address, const ChannelRequest &request, const Deadline &deadline);
  void connect(const addrinfo &to);
  void send(const std::string &bytes);
  // Waits until the key is set. Returns false if the deadline passes first.
  bool await(const std::string &key, const Deadline &deadline);

  const std::chrono::milliseconds timeout_;
  std::unique_ptr<Relay> relay_;  // on rank 0 alone; ends when rank 0's own connection to it ends
  std::mutex mutex_;              // guards the rest
  Socket socket_;
  std::string unread_;  // the beginning of a record
  std::map<std::string, std::string> values_;
};

}  // namespace protrain::comm::gloo
