#include "comm/gloo/mesh.h"

#include <gloo/rendezvous/store.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/signals.h"
#include "comm/address.h"

namespace protrain::comm::gloo {

namespace {

using ::gloo::rendezvous::Store;

constexpr std::chrono::milliseconds kAgain(20);  // after the deadline, all connections are closed this often

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses addresses_of(const std::string &host) {
  addrinfo *found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0) found = nullptr;
  return {found, &freeaddrinfo};
}

// True for an address that only this machine reaches.
bool is_loopback(const sockaddr &address) {
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 of_6{};
    std::memcpy(&of_6, &address, sizeof of_6);
    return IN6_IS_ADDR_LOOPBACK(&of_6.sin6_addr);
  }
  sockaddr_in of_4{};
  std::memcpy(&of_4, &address, sizeof of_4);
  return of_4.sin_family == AF_INET && ntohl(of_4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

// Returns the network interface that GLOO_SOCKET_IFNAME names; PyTorch reads the same variable. If it is not set,
// returns this host's name, or 127.0.0.1 if the name has no address.
::gloo::transport::tcp::attr own_address() {
  ::gloo::transport::tcp::attr address;
  if (const char *name = std::getenv("GLOO_SOCKET_IFNAME"); name != nullptr && *name != 0) {
    address.iface = name;
    return address;
  }
  std::array<char, 256> host{};
  const bool named = gethostname(host.data(), host.size() - 1) == 0;
  address.hostname = named && addresses_of(host.data()) ? host.data() : "127.0.0.1";
  return address;
}

// Returns advice for two ranks that meet at an address of the network, but cannot connect because one of them has only
// a loopback address. In all other cases returns "".
std::string advice(const ChannelRequest &request, int other, const std::vector<char> &own,
                   const std::vector<char> &theirs) {
  const auto of_machine_only = [](const std::vector<char> &bytes) {
    sockaddr_storage address{};
    std::memcpy(&address, bytes.data(), std::min(bytes.size(), sizeof address));
    return is_loopback(reinterpret_cast<const sockaddr &>(address));
  };
  const std::optional<Address> meeting = address_of(request.rendezvous);
  const bool own_only = of_machine_only(own);
  if (!meeting || (!own_only && !of_machine_only(theirs))) return "";
  const Addresses met = addresses_of(meeting->host);
  if (!met || is_loopback(*met->ai_addr)) return "";
  return fmt::format(
      "; rank {}'s own address is a loopback address, which other machines do not reach: set GLOO_SOCKET_IFNAME there "
      "to the name of the network between the machines",
      own_only ? request.rank : other);
}

// When the deadline passes, closes all connections, which ends Gloo's wait for them. Closes all connections again every
// kAgain, because Gloo may have opened one meanwhile.
class Watch {
 public:
  Watch(::gloo::transport::Context &context, const Deadline &deadline) {
    const BlockedSignals blocked;
    thread_ = std::jthread([this, &context, &deadline](const std::stop_token &stop) { run(stop, context, deadline); });
  }

 private:
  void run(const std::stop_token &stop, ::gloo::transport::Context &context, const Deadline &deadline) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      stopped_.wait_for(lock, stop, std::max(deadline.left(), kAgain), [] { return false; });
      if (!deadline.over()) continue;
      for (int r = 0; r < context.size; ++r)
        if (r != context.rank) close(*context.getPair(r));
    }
  }

  static void close(::gloo::transport::Pair &pair) {
    try {
      pair.close();
    } catch (const std::exception &) {  // Gloo has closed it itself
    }
  }

  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;
};

// Waits until a rank has stored the addresses of its listeners, and returns them.
std::vector<char> addresses_of_rank(int rank, Store &store, const Deadline &deadline) {
  const std::string key = std::to_string(rank);
  try {
    store.wait({key}, deadline.left());
  } catch (const Error &error) {
    require(error.code != Code::timeout, Code::timeout, "rendezvous", "timed out, because rank {} did not come", rank);
    throw;
  }
  return store.get(key);
}

}  // namespace

std::string words_of(const std::exception &error) {
  const std::string_view text = error.what();
  const std::size_t end = text.find("] ");
  const bool placed = text.starts_with('[') && end != text.npos && text.substr(0, end).find(".cc:") != text.npos;
  return std::string(placed ? text.substr(end + 2) : text);
}

Mesh::Mesh(const ChannelRequest &request, Store &store, const Deadline &deadline)
    : ::gloo::Context(request.rank, request.ranks) {
  device_ = ::gloo::transport::tcp::CreateDevice(own_address());
  transportContext_ = device_->createContext(rank, size);
  transportContext_->setTimeout(request.timeout);
  // This rank has a listener for each other rank. The addresses of the listeners are stored one after the other.
  std::vector<char> addresses;
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    auto &pair = transportContext_->createPair(r);
    pair->setLocalRank(0);
    const std::vector<char> address = pair->address().bytes();
    addresses.insert(addresses.end(), address.begin(), address.end());
  }
  store.set(std::to_string(rank), addresses);
  connect_all(request, addresses.size(), store, deadline);
  require(!deadline.over(), Code::timeout, "rendezvous", "timed out, because the connections took too long");
}

void Mesh::connect_all(const ChannelRequest &request, std::size_t own_bytes, Store &store, const Deadline &deadline) {
  const Watch watch(*transportContext_, deadline);
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    const std::vector<char> all = addresses_of_rank(r, store, deadline);
    const std::size_t bytes = own_bytes / static_cast<std::size_t>(size - 1);
    require(all.size() == own_bytes, Code::mismatch, "ranks",
            "rank {} was started as one of {} ranks and rank {} as one of {}; all need the same number", r,
            all.size() / bytes + 1, rank, size);
    const auto at = static_cast<std::ptrdiff_t>(bytes) * (rank > r ? rank - 1 : rank);  // no listener for r itself
    const std::vector<char> theirs(all.begin() + at, all.begin() + at + static_cast<std::ptrdiff_t>(bytes));
    auto &pair = *transportContext_->getPair(r);
    const std::vector<char> own = pair.address().bytes();
    try {
      pair.connect(theirs);
      require(!deadline.over(), Code::timeout, "rendezvous", "timed out, because rank {} did not connect", r);
    } catch (const std::exception &error) {
      const std::string why =
          deadline.over() ? fmt::format("timed out, because rank {} did not connect", r) : words_of(error);
      fail(deadline.over() ? Code::timeout : Code::peer, "rendezvous", "{}{}", why, advice(request, r, own, theirs));
    }
  }
}

}  // namespace protrain::comm::gloo
