// Opens channels. A transport is a plugin that is loaded when it is asked for, so that the library needs no MPI.
#include "comm/channel.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "comm/address.h"
#include "comm/agree.h"
#include "comm/launch.h"
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
  void throw_if_failed() override {}
};

constexpr const char *kNccl = "libprotrain_nccl.so";

struct TransportPlugin {
  const char *file;
  const char *vendor;  // its name in errors
};

// Returns the plugin of a transport. Open MPI and MPICH have a plugin each. A process must use the plugin of the MPI
// whose launcher started it.
TransportPlugin plugin_of(Transport transport) {
  if (transport == Transport::gloo) return {"libprotrain_gloo.so", "Gloo"};
  return mpi_of_launcher() == MpiKind::mpich ? TransportPlugin{"libprotrain_mpich.so", "MPICH"}
                                             : TransportPlugin{"libprotrain_openmpi.so", "Open MPI"};
}

void check_rendezvous(const std::string &rendezvous) {
  require(!rendezvous.empty(), Code::arg, "rendezvous",
          "Gloo needs a place where the ranks meet; set rendezvous to the HOST:PORT of rank 0 or to a folder that all "
          "ranks share");
  if (rendezvous.find('/') == std::string::npos) {
    require(address_of(rendezvous).has_value(), Code::arg, "rendezvous",
            "'{}' is not HOST:PORT with a port from 1 to 65535, and no folder, which would have a '/' in it",
            printable(rendezvous));
  } else {
    std::error_code error;
    require(std::filesystem::is_directory(rendezvous, error), Code::arg, "rendezvous",
            "{} is no folder that this rank can see{}; create it before the ranks start", printable(rendezvous),
            error ? ": " + error.message() : "");
  }
}

void check(const ChannelRequest &request) {
  require(request.timeout.count() > 0, Code::arg, "comm_timeout", "it must be longer than nothing");
  if (request.transport == Transport::mpi) {
    const Launched launch = launched().value_or(Launched{Transport::mpi, 0, 1});
    require(launch.transport == Transport::mpi, Code::unsupported, "comm",
            "srun started {} processes without a plugin for MPI, so MPI would find each of them alone; use srun "
            "--mpi=pmix for Open MPI, srun --mpi=pmi2 for MPICH, or Gloo",
            launch.ranks);
  }
  if (request.transport != Transport::gloo) return;
  require(request.ranks >= 1, Code::arg, "ranks", "{} ranks were asked for; at least 1 is needed", request.ranks);
  require(request.rank >= 0 && request.rank < request.ranks, Code::arg, "rank",
          "rank {} of {} ranks: ranks count from 0", request.rank, request.ranks);
  check_rendezvous(request.rendezvous);
}

// Throws on every rank if any rank cannot use NCCL, so that all ranks go on without NCCL. `why_not` is the reason why
// this rank cannot use NCCL; "" if it can.
void require_usable_everywhere(Channel &hosts, const std::string &why_not) {
  const std::vector<std::string> reasons = gather_texts(hosts, why_not);
  for (std::size_t r = 0; r < reasons.size(); ++r)
    require(reasons[r].empty(), Code::unsupported, "comm", "rank {} cannot use NCCL: {}", r, reasons[r]);
}

void require_own_gpus(Channel &hosts, const std::string &gpu) {
  const std::vector<std::string> gpus = gather_texts(hosts, name_of_machine() + ' ' + gpu);
  for (std::size_t r = 0; r < gpus.size(); ++r) {
    const auto first = static_cast<std::size_t>(std::ranges::find(gpus, gpus[r]) - gpus.begin());
    require(first == r, Code::unsupported, "comm",
            "ranks {} and {} use the same GPU, and NCCL needs one for each; the device \"cuda\" gives each rank of a "
            "machine its own",
            first, r);
  }
}

std::unique_ptr<Channel> owned(Channel *channel, Error &&error) {
  if (channel == nullptr) throw std::move(error);
  return std::unique_ptr<Channel>(channel);
}

}  // namespace

std::unique_ptr<Channel> open(const ChannelRequest &request) {
  if (request.transport == Transport::single) return std::make_unique<SingleChannel>();
  check(request);
  const auto [file, vendor] = plugin_of(request.transport);
  const Plugin plugin = Plugin::load(file, vendor, "comm", PROTRAIN_COMM_BUILD_ID);
  Error error(Code::internal, "comm", fmt::format("the plugin for {} gave no channel", vendor));
  return owned(plugin.function<OpenChannel>(kOpenSymbol)(request, error), std::move(error));
}

std::unique_ptr<Channel> open_between_gpus(const GpuRequest &request) {
  OpenGpuChannel *open = nullptr;
  std::string why_not;
  try {
    require(!request.cuda_pci_bus_id.empty(), Code::unsupported, "comm", "it computes on no GPU of CUDA's");
    open = Plugin::load(kNccl, "NCCL", "comm", PROTRAIN_COMM_BUILD_ID).function<OpenGpuChannel>(kOpenGpuSymbol);
  } catch (const Error &error) {
    why_not = error.text;
  }
  require_usable_everywhere(request.hosts, why_not);
  require_own_gpus(request.hosts, request.cuda_pci_bus_id);
  Error error(Code::internal, "comm", "the plugin for NCCL gave no channel");
  return owned(open(request, error), std::move(error));
}

}  // namespace protrain::comm
