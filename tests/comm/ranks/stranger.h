// Stranger: a connection to a port from a process that is no rank. Occupant: another program that uses the port.
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

// Listens on a port of this machine while an object of this class exists. If another program has the port, listens() is
// false.
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
  // Sends the words to a client that connects within 50 ms, if there is one.
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

// Returns a free port below the ephemeral ports, which the system gives to programs that ask for no particular port.
inline int free_port() {
  std::random_device random;
  for (;;) {
    const int port = 20'000 + static_cast<int>(random() % 12'000);
    if (Occupant(port).listens()) return port;
  }
}

class Stranger {
 public:
  // Connects to the port. Tries again until a program listens there.
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
      if (count < 0) return;  // the other end has closed the connection
      words.remove_prefix(static_cast<std::size_t>(count));
    }
  }

  // Takes one byte. Returns true if the other end sends one within ten seconds.
  bool hears() const {
    char byte = 0;
    return is_ready() && recv(socket_, &byte, 1, MSG_DONTWAIT) > 0;
  }
  // Returns the next bytes that the other end sends. Stops early if the other end closes the connection or sends
  // nothing for ten seconds.
  std::string take(std::size_t bytes) const {
    std::string taken;
    for (char byte = 0; taken.size() < bytes && is_ready() && recv(socket_, &byte, 1, 0) == 1;) taken += byte;
    return taken;
  }
  // True if the other end closes the connection within ten seconds and sends nothing before.
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
