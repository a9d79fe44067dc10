// Stranger: a connection to a port by someone who is no rank.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace protrain::comm {

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

// Listens on a port of this machine while it lives, unless another does.
class Occupant {
 public:
  explicit Occupant(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = loopback(port);
    listens_ = bind(socket_, reinterpret_cast<const sockaddr *>(&address), sizeof address) == 0 &&
               listen(socket_, SOMAXCONN) == 0;
  }
  ~Occupant() { close(socket_); }
  Occupant(const Occupant &) = delete;
  Occupant &operator=(const Occupant &) = delete;

  bool listens() const { return listens_; }
  // Sends the words to one who connects within a moment.
  void answer(std::string_view words) const {
    pollfd polled{socket_, POLLIN, 0};
    if (poll(&polled, 1, 50) != 1) return;
    const int guest = accept(socket_, nullptr, nullptr);
    send(guest, words.data(), words.size(), MSG_NOSIGNAL);
    close(guest);
  }

 private:
  const int socket_;
  bool listens_ = false;
};

// Below the ports that the system gives to those who ask for none.
inline int free_port() {
  std::random_device random;
  for (;;) {
    const int port = 20'000 + static_cast<int>(random() % 12'000);
    if (Occupant(port).listens()) return port;
  }
}

class Stranger {
 public:
  // Tries until somebody listens.
  explicit Stranger(int port) {
    const sockaddr_in address = loopback(port);
    for (;;) {
      socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connect(socket_, reinterpret_cast<const sockaddr *>(&address), sizeof address) == 0) return;
      close(socket_);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  Stranger(Stranger &&other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  Stranger &operator=(Stranger &&) = delete;
  ~Stranger() {
    if (socket_ >= 0) close(socket_);
  }

  void say(std::string_view words) const {
    while (!words.empty()) {
      const ssize_t count = send(socket_, words.data(), words.size(), MSG_NOSIGNAL);
      if (count < 0) return;  // the other end has had enough
      words.remove_prefix(static_cast<std::size_t>(count));
    }
  }

  // The other end sends something within ten seconds.
  bool hears() const {
    char byte = 0;
    return is_ready() && recv(socket_, &byte, 1, MSG_DONTWAIT) > 0;
  }
  // The next bytes that the other end sends. Fewer if it closes the connection, or sends nothing for ten seconds.
  std::string take(std::size_t bytes) const {
    std::string taken;
    for (char byte = 0; taken.size() < bytes && is_ready() && recv(socket_, &byte, 1, 0) == 1;) taken += byte;
    return taken;
  }
  // The other end has closed the connection, or does so within ten seconds, and has sent nothing more.
  bool is_closed() const {
    char byte = 0;
    return is_ready() && recv(socket_, &byte, 1, MSG_DONTWAIT) <= 0;
  }

 private:
  bool is_ready() const {
    pollfd polled{socket_, POLLIN, 0};
    return poll(&polled, 1, 10'000) == 1;
  }

  int socket_ = -1;
};

}  // namespace protrain::comm
