#include "session/ranks.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <optional>
#include <vector>

#include "base/error.h"
#include "comm/agree.h"
#include "comm/launch.h"
#include "draft/ranked_machine.h"

namespace protrain::session {

namespace {

constexpr const char *kCallNames[] = {"step",       "evaluate", "predict", "read parameters", "write parameters",
                                      "read grads", "save",     "export",  "use adapters"};

std::string subject_of(std::size_t rank) { return fmt::format("rank {}", rank); }

// True for options that may differ from rank to rank.
bool is_own(std::string_view key) {
  constexpr std::string_view kOwn[] = {"rank", "rendezvous", "device", "offload_dir", "profile_dir", "trial"};
  return std::ranges::find(kOwn, key) != std::end(kOwn);
}

comm::ChannelRequest request_of(const draft::RankSettings &settings) {
  comm::ChannelRequest request{
      .rank = settings.rank, .ranks = settings.count, .rendezvous = settings.rendezvous, .timeout = settings.timeout};
  const std::optional<comm::Launched> launched = settings.comm == "none" ? std::nullopt : comm::launched();
  const bool meets = !settings.rendezvous.empty();
  const bool automatic = settings.comm == "auto" || settings.comm == "nccl";  // NCCL's ranks meet over MPI or Gloo
  if (settings.comm == "none" || (automatic && !meets && !launched)) {
    require(settings.count == 1, Code::arg, "ranks",
            "{} ranks have no way to reach each other; start them with mpirun or srun, or set rendezvous",
            settings.count);
    return request;
  }
  const bool gloo =
      settings.comm == "gloo" || (automatic && (meets || (launched && launched->transport == comm::Transport::gloo)));
  request.transport = gloo ? comm::Transport::gloo : comm::Transport::mpi;
  if (launched && settings.count == 1) {
    request.rank = launched->rank;
    request.ranks = launched->ranks;
  }
  return request;
}

// Runs a part of a call in which the other ranks wait for this one. If this rank runs out of memory, the others are
// told.
template <typename Work>
auto together(comm::Channel &channel, Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc &) {
    if (channel.ranks() == 1) throw;
    channel.abort("out of memory");
    throw Error(Code::nomem, "", "out of memory", {.channel_broken = true});
  }
}

}  // namespace

Channels open_channels(const draft::Options &options, draft::Settings &settings) {
  const std::shared_ptr<comm::Channel> hosts = comm::open(request_of(settings.ranks));
  const int asked = settings.ranks.count;
  settings.ranks.rank = hosts->rank();
  settings.ranks.count = hosts->ranks();
  settings.ranks.reaches_devices = false;  // MPI and Gloo do not
  if (hosts->ranks() > 1) {
    std::map<std::string, std::string> texts = {{"release", PROTRAIN_VERSION}};
    for (const draft::OptionRow &row : draft::option_table())
      if (const std::string key(row.key); !is_own(key)) texts[key] = options.get(key);
    together(*hosts, [&] { draft::require_same(*hosts, texts); });
  }
  require(asked == 1 || asked == hosts->ranks(), Code::arg, "ranks",
          "{} ranks were asked for, and {} were started; start as many, or leave the option out", asked,
          hosts->ranks());
  return Channels::over(hosts);
}

std::string device_of_rank(comm::Channel &hosts, const std::string &device) {
  if (hosts.ranks() == 1) return backend::device_of_process(device, 0);
  const std::vector<int> here = comm::ranks_of_this_machine(hosts);
  return backend::device_of_process(device, static_cast<int>(std::ranges::find(here, hosts.rank()) - here.begin()));
}

void add_step_channel(Channels &channels, const backend::DeviceInfo &device, draft::Settings &settings) {
  const bool required = settings.ranks.comm == "nccl";
  if (channels.hosts->ranks() == 1 || (settings.ranks.comm != "auto" && !required)) return;
  // Ranks that compute on the host's processor need no NCCL. The ranks gather what each of them computes on, so that
  // all ranks decide alike whether to use NCCL.
  const std::vector<char> on_gpu =
      comm::gather_values(*channels.hosts, static_cast<char>(!device.cuda_pci_bus_id.empty()));
  if (!required && std::ranges::find(on_gpu, 1) == on_gpu.end()) return;
  try {
    channels.steps = comm::open_between_gpus(
        {.hosts = *channels.hosts, .cuda_pci_bus_id = device.cuda_pci_bus_id, .timeout = settings.ranks.timeout});
    settings.ranks.reaches_devices = true;
  } catch (const Error &error) {
    if (required || error.facts.channel_broken) throw;
    channels.why_not_nccl = error.text;
  }
}

struct Ranks::Ready {
  Call call;
  bool cancelled, failed;
  Terms terms;
};

// A request of rank 0 to the other ranks: to send their parts of an array, or to end.
struct Ranks::Request {
  enum class Kind : std::uint64_t { read, done, failed } kind;
  std::uint64_t parameter, array, offset, bytes;
};

void Ranks::meet(Call call, bool cancelled, const std::function<Terms()> &prepare) {
  together(channel_, [&] { agree(call, cancelled, prepare); });
}

void Ranks::agree(Call call, bool cancelled, const std::function<Terms()> &prepare) {
  Ready ready{.call = call, .cancelled = cancelled, .failed = false, .terms = {}};
  std::optional<Error> own;
  try {
    ready.terms = prepare();
  } catch (const Error &error) {
    own = error;
    ready.failed = true;
  }
  if (!several()) {
    if (own) throw std::move(*own);
    return;
  }
  const std::vector<Ready> all = comm::gather_values(channel_, ready);
  std::vector<bool> failed;
  for (const Ready &one : all) failed.push_back(one.failed);
  if (std::ranges::find(failed, true) != failed.end()) fail_on_all(failed, "could not begin its call", own);
  for (std::size_t r = 1; r < all.size(); ++r) {
    require(all[r].call == all[0].call, Code::state, subject_of(r),
            "rank {} calls {} while rank 0 calls {}; all ranks must make the same calls in the same order", r,
            kCallNames[static_cast<int>(all[r].call)], kCallNames[static_cast<int>(all[0].call)]);
  }
  if (std::ranges::any_of(all, &Ready::cancelled)) throw Error(Code::cancelled, "", "cancelled before the call began");
  for (std::size_t r = 1; r < all.size(); ++r)
    require(all[r].terms == all[0].terms, Code::mismatch, subject_of(r),
            "rank {} and rank 0 differ in the step, the learning rate, the shapes of their inputs or the parameter", r);
}

float Ranks::mean(const Evaluated &own) {
  const auto require_mean = [](bool finite, double weights) {
    require(finite && std::isfinite(weights), Code::nonfinite, "loss", "the loss is not finite");
    require(weights != 0, Code::nonfinite, "targets",
            "none of the targets counts: every label of the batch is ignored, or has the weight zero");
  };
  if (!several()) {
    require_mean(own.finite, own.weight);
    return own.loss;
  }
  double sum = 0, weights = 0;
  bool finite = true;
  for (const Evaluated &of_rank : comm::gather_values(channel_, own)) {
    finite = finite && of_rank.finite;
    if (of_rank.weight != 0) sum += of_rank.weight * static_cast<double>(of_rank.loss);
    weights += of_rank.weight;
  }
  require_mean(finite, weights);
  return static_cast<float>(sum / weights);
}

// Throws this rank's own error. If there is none, throws Code::peer with the error of the first rank that failed.
void Ranks::fail_on_all(const std::vector<bool> &failed, const char *what, const std::optional<Error> &own) {
  const std::vector<std::string> texts = comm::gather_texts(channel_, own ? comm::sentence_of(*own) : "");
  if (own) throw *own;
  const auto first = static_cast<std::size_t>(std::ranges::find(failed, true) - failed.begin());
  fail(Code::peer, subject_of(first), "rank {} {}: {}", first, what, texts[first]);
}

std::vector<std::string> Ranks::on_all(const std::function<std::string(const Pulse &pulse)> &work) {
  return together(channel_, [&] { return work_on_all(work); });
}

std::vector<std::string> Ranks::work_on_all(const std::function<std::string(const Pulse &pulse)> &work) {
  std::vector<Progress> progress;
  const auto any = [&](Progress wanted) { return std::ranges::find(progress, wanted) != progress.end(); };
  const auto tell = [&](Progress mine) { progress = comm::gather_values(channel_, mine); };
  std::optional<Error> own;
  std::string result;
  try {
    result = work([&] {
      if (!several()) return;
      tell(Progress::working);
      require(!any(Progress::failed), Code::peer, "", "another rank failed");
    });
  } catch (const Error &error) {
    if (error.facts.channel_broken) throw;
    if (!any(Progress::failed)) own = error;
  } catch (const std::bad_alloc &) {
    own = Error(Code::nomem, "", "out of memory");
  }
  if (!several()) {
    if (own) throw *own;
    return {result};
  }
  while (!any(Progress::failed)) {
    tell(own ? Progress::failed : Progress::done);
    if (!any(Progress::working) && !any(Progress::failed)) return comm::gather_texts(channel_, result);
  }
  std::vector<bool> failed;
  for (const Progress one : progress) failed.push_back(one == Progress::failed);
  fail_on_all(failed, "failed", own);
}

std::string Ranks::on_rank_0(Parameters &parameters, const std::function<std::string(const state::Read &read)> &work) {
  return together(channel_, [&] { return rank() == 0 ? lead(parameters, work) : serve(parameters); });
}

std::string Ranks::lead(Parameters &parameters, const std::function<std::string(const state::Read &read)> &work) {
  const state::Read read = [&](std::size_t parameter, std::size_t array, std::uint64_t offset,
                               std::span<std::byte> out) {
    send_request({Request::Kind::read, parameter, array, offset, out.size()});
    parameters.read_for(0, parameter, array, offset, out);
  };
  if (!several()) return work(read);
  try {
    const std::string result = work(read);
    send_request({.kind = Request::Kind::done});
    return comm::broadcast_text(channel_, result);
  } catch (const std::exception &error) {
    const auto *own = dynamic_cast<const Error *>(&error);
    if (own != nullptr && own->facts.channel_broken) throw;
    send_request({.kind = Request::Kind::failed});
    comm::broadcast_text(channel_, comm::sentence_of(error));
    throw;
  }
}

std::string Ranks::serve(Parameters &parameters) {
  std::vector<std::byte> buffer;
  for (;;) {
    const Request request = receive_request();
    if (request.kind == Request::Kind::read) {
      buffer.resize(request.bytes);
      parameters.read_for(0, request.parameter, request.array, request.offset, buffer);
      continue;
    }
    std::string text = comm::broadcast_text(channel_, {});
    require(request.kind == Request::Kind::done, Code::peer, subject_of(0), "rank 0 failed: {}", text);
    return text;
  }
}

void Ranks::send_request(const Request &request) {
  std::vector<comm::Send> sends;
  for (int r = 1; r < count(); ++r) sends.push_back({r, reinterpret_cast<const std::byte *>(&request), sizeof request});
  channel_.exchange(sends, {});
}

Ranks::Request Ranks::receive_request() {
  Request request{};
  const comm::Receive receive = {0, reinterpret_cast<std::byte *>(&request), sizeof request};
  channel_.exchange({}, {&receive, 1});
  return request;
}

}  // namespace protrain::session
