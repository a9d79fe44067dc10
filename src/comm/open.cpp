// Opens channels. A transport is a plugin that is loaded when it is asked for, so that the library needs no MPI.
#include "comm/channel.h"

#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "comm/plugin.h"

namespace protrain::comm {

namespace {

// A group of one rank: there is nobody to send to.
class SingleChannel final : public Channel {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  void exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
    require(sends.empty() && receives.empty(), Code::internal, "comm", "there is one rank, and it sends to another");
  }
  void abort(const std::string &) noexcept override {}
};

struct TransportPlugin {
  const char *file;
  const char *vendor;  // its name in errors
};

bool is_set(const char *variable) { return std::getenv(variable) != nullptr; }

// Both MPIs have a plugin, and a process must use the one whose launcher started it. Slurm's pmix starts Open MPI.
bool launched_by_mpich() { return is_set("PMI_RANK") && !is_set("PMIX_RANK") && !is_set("OMPI_COMM_WORLD_RANK"); }

TransportPlugin plugin_of(Transport transport) {
  if (transport == Transport::gloo) return {"libprotrain_gloo.so", "Gloo"};
  return launched_by_mpich() ? TransportPlugin{"libprotrain_mpich.so", "MPICH"}
                             : TransportPlugin{"libprotrain_openmpi.so", "Open MPI"};
}

void check(const ChannelRequest &request) {
  require(request.timeout.count() > 0, Code::arg, "comm_timeout", "it must be longer than nothing");
  if (request.transport != Transport::gloo) return;
  require(request.ranks >= 1, Code::arg, "ranks", "{} ranks were asked for; at least 1 is needed", request.ranks);
  require(request.rank >= 0 && request.rank < request.ranks, Code::arg, "rank",
          "rank {} of {} ranks: ranks count from 0", request.rank, request.ranks);
  require(!request.rendezvous.empty(), Code::arg, "rendezvous",
          "Gloo needs a folder in which the ranks find each other; set rendezvous");
}

}  // namespace

std::unique_ptr<Channel> open(const ChannelRequest &request) {
  if (request.transport == Transport::single) return std::make_unique<SingleChannel>();
  check(request);
  const auto [file, vendor] = plugin_of(request.transport);
  const Plugin plugin = Plugin::load(file, vendor, "comm", PROTRAIN_COMM_BUILD_ID);
  Error error(Code::internal, "comm", fmt::format("the plugin for {} gave no channel", vendor));
  std::unique_ptr<Channel> channel(plugin.function<OpenChannel>(kOpenSymbol)(request, error));
  if (!channel) throw std::move(error);
  return channel;
}

}  // namespace protrain::comm
