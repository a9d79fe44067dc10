#include "comm/gloo/store.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <ranges>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/signals.h"

namespace protrain::comm::gloo {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostBytes = 1 << 20;  // that a rank may send, all its records together
constexpr std::size_t kMostGreeting = 256;   // bytes; a stranger may send no more
constexpr std::size_t kMostStrangers = 64;   // connections that have not yet greeted
constexpr timeval kPatience{2, 0};           // of one try to connect to rank 0, and of one send to it
constexpr auto kPause = 100ms;               // between two tries
constexpr auto kEcho = 1000ms;               // the longest wait for the relay to pass on a value
constexpr const char kNoRank[] = "what listens there does not speak as a rank does";
constexpr const char kGreeting[] = "protrain " PROTRAIN_COMM_BUILD_ID;

std::string system_text(int error) { return std::generic_category().message(error); }

// A message between a rank and the relay (see Relay). It is sent as four parts: the size of the key, the size of the
// value, the key and the value. The first record that a rank sends is its greeting.
struct Record {
  std::string key, value;
};

std::string encoded(const Record &record) {
  const std::array<std::uint32_t, 2> sizes{static_cast<std::uint32_t>(record.key.size()),
                                           static_cast<std::uint32_t>(record.value.size())};
  return std::string(reinterpret_cast<const char *>(sizes.data()), sizeof sizes) + record.key + record.value;
}

std::string greeting_of(int rank, int ranks) { return encoded({kGreeting, fmt::format("{} of {}", rank, ranks)}); }

// Removes the first record from `bytes` and returns it. Returns an empty optional if the record is not complete yet.
// Code::format if the bytes cannot be a record.
std::optional<Record> take_record(std::string &bytes) {
  std::array<std::uint32_t, 2> sizes{};
  if (bytes.size() < sizeof sizes) return std::nullopt;
  std::memcpy(sizes.data(), bytes.data(), sizeof sizes);
  require(sizes[0] <= kMostBytes && sizes[1] <= kMostBytes, Code::format, "rendezvous", kNoRank);
  const std::size_t end = sizeof sizes + sizes[0] + sizes[1];
  if (bytes.size() < end) return std::nullopt;
  Record record{bytes.substr(sizeof sizes, sizes[0]), bytes.substr(sizeof sizes + sizes[0], sizes[1])};
  bytes.erase(0, end);
  return record;
}

// Appends bytes that have arrived to `bytes`, without waiting for more. Returns false if the connection has ended or
// failed. Returns true in all other cases, even if nothing has arrived.
bool receive_some(const Socket &socket, std::string &bytes) {
  std::array<char, 1 << 14> part;
  const ssize_t count = recv(socket.get(), part.data(), part.size(), MSG_DONTWAIT);
  if (count > 0) bytes.append(part.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses addresses_of(const std::string &host, const std::string &port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  require(error == 0, Code::arg, "rendezvous", "the host {} is not known here: {}", host, gai_strerror(error));
  return {found, &freeaddrinfo};
}

// Listens at every address of this machine: over IPv6 and IPv4, or over IPv4 alone where there is no IPv6.
Socket listener_of(const std::string &port, const std::string &rendezvous) {
  int error = 0;
  for (const char *any : {"::", "0.0.0.0"}) {
    const Addresses own = addresses_of(any, port);
    Socket socket(::socket(own->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int no = 0, yes = 1;
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(socket.get(), own->ai_addr, own->ai_addrlen) == 0 && listen(socket.get(), SOMAXCONN) == 0) return socket;
    error = errno;
    if (error == EADDRINUSE) break;
  }
  fail(Code::arg, "rendezvous", "rank 0 cannot listen on the port of {}: {}; choose another port", rendezvous,
       system_text(error));
}

}  // namespace

// The relay: a thread of rank 0. It polls all connections and never waits for a single one. It appends every record to
// a log and sends the whole log to every rank, so a rank that connects late misses nothing. A connection that has not
// sent a greeting yet is a stranger. The relay sends nothing to a stranger, and closes the connection if the stranger
// sends anything but a greeting. Once all ranks have greeted, the relay closes the connections of all strangers.
class Relay {
 public:
  Relay(Socket listener, Socket rank_0, int ranks) : listener_(std::move(listener)), ranks_(ranks) {
    peers_.push_back({.socket = std::move(rank_0), .rank = 0});
    const BlockedSignals blocked;
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() { thread_.join(); }
  Relay(const Relay &) = delete;
  Relay &operator=(const Relay &) = delete;

 private:
  struct Peer {
    Socket socket;
    int rank = -1;  // -1 for a stranger
    std::string unread;
    std::size_t received = 0, sent = 0;  // bytes received from the peer, and bytes of the log sent to it
    bool gone = false;
  };

  void run() noexcept {
    try {
      while (!peers_.empty() && peers_.front().rank == 0) turn();
    } catch (const std::exception &) {  // out of memory; the ranks see that their connections end
    }
    peers_.clear();
    listener_ = Socket();
  }

  void turn() {
    std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};  // poll() skips a listener that is closed
    for (const Peer &peer : peers_)
      polled.push_back({peer.socket.get(), static_cast<short>(is_behind(peer) ? POLLIN | POLLOUT : POLLIN), 0});
    if (poll(polled.data(), polled.size(), -1) < 0) return;
    for (std::size_t i = 0; i < peers_.size(); ++i)
      if (polled[i + 1].revents != 0) peers_[i].gone = !listen_to(peers_[i]);
    std::erase_if(peers_, [](const Peer &peer) { return peer.gone; });
    // Serves rank 0 last. The relay runs in rank 0's process, which may end once rank 0 receives a record that it sent
    // itself. By then the relay has already sent the record to every other rank whose connection had room for it.
    for (Peer &peer : std::views::reverse(peers_))
      if (is_behind(peer)) send_some(peer);
    if (polled[0].revents != 0) admit();
    if (std::ranges::count_if(peers_, [](const Peer &peer) { return peer.rank >= 0; }) == ranks_) {
      listener_ = Socket();
      std::erase_if(peers_, [](const Peer &peer) { return peer.rank < 0; });
    }
  }

  bool is_behind(const Peer &peer) const { return peer.rank >= 0 && peer.sent < log_.size(); }

  // Sends as much of the log as the connection takes. If the connection has ended, listen_to() will find out.
  void send_some(Peer &peer) {
    const std::string_view rest = std::string_view(log_).substr(peer.sent);
    const ssize_t count = ::send(peer.socket.get(), rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count > 0) peer.sent += static_cast<std::size_t>(count);
  }

  // Reads what the peer has sent. Returns false if the peer has gone or must be dropped.
  bool listen_to(Peer &peer) try {
    const std::size_t before = peer.unread.size();
    const bool open = receive_some(peer.socket, peer.unread);
    peer.received += peer.unread.size() - before;
    if (peer.received > (peer.rank < 0 ? kMostGreeting : kMostBytes)) return false;
    while (const std::optional<Record> record = take_record(peer.unread)) {
      if (peer.rank >= 0)
        log_ += encoded(*record);
      else if (!greeted(peer, encoded(*record)))
        return false;
    }
    return open;
  } catch (const Error &) {
    return false;
  }

  // Sets the peer's rank to the one in its greeting. Returns false if this is no greeting of a rank, or if another peer
  // has this rank already.
  bool greeted(Peer &peer, const std::string &greeting) {
    for (int rank = 0; rank < ranks_; ++rank) {
      if (greeting != greeting_of(rank, ranks_)) continue;
      if (std::ranges::any_of(peers_, [&](const Peer &other) { return other.rank == rank; })) return false;
      peer.rank = rank;
      return true;
    }
    return false;
  }

  void admit() {
    Socket guest(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (guest.get() < 0) return std::this_thread::sleep_for(kPause);  // for example, the process has no descriptor left
    if (peers_.size() >= static_cast<std::size_t>(ranks_) + kMostStrangers)
      peers_.erase(std::ranges::find(peers_, -1, &Peer::rank));
    peers_.push_back({.socket = std::move(guest)});
  }

  Socket listener_;
  const int ranks_;
  std::vector<Peer> peers_;                     // rank 0 is the first
  std::string log_ = encoded({kGreeting, ""});  // all records; the first one tells a rank that it was let in
  std::thread thread_;
};

TcpStore::TcpStore(const ChannelRequest &request, const Deadline &deadline) : timeout_(request.timeout) {
  const Address address = address_of(request.rendezvous).value();
  if (request.rank != 0) {
    reach_relay(address, request, deadline);
    return;
  }
  std::array<int, 2> ends{};
  Socket listener = listener_of(address.port, request.rendezvous);
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0, Code::io, "rendezvous",
          "cannot make a socket: {}", system_text(errno));
  socket_ = Socket(ends[0]);
  setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  try {
    relay_ = std::make_unique<Relay>(std::move(listener), Socket(ends[1]), request.ranks);
  } catch (const std::system_error &error) {
    fail(Code::nomem, "rendezvous", "cannot start a thread: {}", error.what());
  }
}

TcpStore::~TcpStore() = default;

void TcpStore::reach_relay(const Address &address, const ChannelRequest &request, const Deadline &deadline) {
  const Addresses addresses = addresses_of(address.host, address.port);
  // `unreached` says why the last try without a connection failed, and `refused` why the last try with a connection
  // failed. The error quotes `refused` if there is one, because it says more.
  std::string unreached, refused;
  for (;; std::this_thread::sleep_for(kPause)) {
    for (const addrinfo *to = addresses.get(); to != nullptr; to = to->ai_next) {
      bool connected = false;
      try {
        connect(*to);
        connected = true;
        send(greeting_of(request.rank, request.ranks));
        if (await(kGreeting, deadline)) return;
        if (refused.empty()) refused = "what listens there does not answer";
      } catch (const Error &error) {
        (connected ? refused : unreached) = error.text;
      }
    }
    require(!deadline.over(), Code::timeout, "rendezvous", "rank {} did not reach rank 0 at {} within {} ms: {}",
            request.rank, request.rendezvous, timeout_.count(), refused.empty() ? unreached : refused);
  }
}

void TcpStore::connect(const addrinfo &to) {
  unread_.clear();
  values_.clear();
  socket_ = Socket(::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  const int error = ::connect(socket_.get(), to.ai_addr, to.ai_addrlen) == 0 ? 0 : errno;
  require(error == 0, Code::peer, "rendezvous", "{}", system_text(error == EINPROGRESS ? ETIMEDOUT : error));
}

void TcpStore::send(const std::string &bytes) {
  require(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()),
          Code::peer, "rendezvous", "rank 0 does not take what is sent: {}", system_text(errno));
}

bool TcpStore::await(const std::string &key, const Deadline &deadline) {
  while (!values_.contains(key)) {
    pollfd polled{socket_.get(), POLLIN, 0};
    if (poll(&polled, 1, static_cast<int>(std::min(deadline.left(), 60'000ms).count())) <= 0) {
      if (deadline.over()) return false;
      continue;
    }
    const bool open = receive_some(socket_, unread_);
    while (std::optional<Record> record = take_record(unread_)) {
      require(record->key == kGreeting || values_.contains(kGreeting), Code::format, "rendezvous", kNoRank);
      values_[record->key] = std::move(record->value);
    }
    require(open || values_.contains(key), Code::peer, "rendezvous", "rank 0 closed the connection{}",
            values_.empty() ? "; all ranks need the same build and number of ranks, and each a number of its own" : "");
  }
  return true;
}

void TcpStore::set(const std::string &key, const std::vector<char> &value) {
  const std::lock_guard lock(mutex_);
  send(encoded({key, {value.begin(), value.end()}}));
  await(key, Deadline(kEcho));
}

std::vector<char> TcpStore::get(const std::string &key) {
  wait({key}, timeout_);
  const std::lock_guard lock(mutex_);
  const std::string &value = values_.at(key);
  return {value.begin(), value.end()};
}

void TcpStore::wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &timeout) {
  const std::lock_guard lock(mutex_);
  const Deadline deadline(timeout);
  for (const std::string &key : keys)
    require(await(key, deadline), Code::timeout, "rendezvous", "timed out, because no rank has set '{}'", key);
}

}  // namespace protrain::comm::gloo
