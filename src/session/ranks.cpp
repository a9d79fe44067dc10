#include "session/ranks.h"

#include <algorithm>
#include <new>
#include <optional>
#include <vector>

#include "base/error.h"
#include "comm/agree.h"
#include "comm/launch.h"
#include "draft/ranked_machine.h"

namespace protrain::session {

namespace {

constexpr const char *kCallNames[] = {"step",       "evaluate", "read parameters", "write parameters",
                                      "read grads", "save",     "export"};

std::string subject_of(std::size_t rank) { return fmt::format("rank {}", rank); }

// Options that may differ from rank to rank.
bool is_own(std::string_view key) {
  constexpr std::string_view kOwn[] = {"rank", "rendezvous", "device", "offload_dir", "profile_dir", "trial"};
  return std::ranges::find(kOwn, key) != std::end(kOwn);
}

comm::ChannelRequest request_of(const draft::RankSettings &settings) {
  comm::ChannelRequest request{
      .rank = settings.rank, .ranks = settings.count, .rendezvous = settings.rendezvous, .timeout = settings.timeout};
  const std::optional<comm::Launched> launched = comm::launched();
  const bool meets = !settings.rendezvous.empty();
  if (settings.comm == "none" || (settings.comm == "auto" && !meets && !launched)) {
    require(settings.count == 1, Code::arg, "ranks",
            "{} ranks have no way to reach each other; start them with mpirun or srun, or set rendezvous",
            settings.count);
    return request;
  }
  const bool automatic = settings.comm == "auto";
  const bool gloo =
      settings.comm == "gloo" || (automatic && (meets || (launched && launched->transport == comm::Transport::gloo)));
  request.transport = gloo ? comm::Transport::gloo : comm::Transport::mpi;
  if (launched && settings.count == 1) {
    request.rank = launched->rank;
    request.ranks = launched->ranks;
  }
  return request;
}

// Runs a part of a call in which the other ranks wait for this one. If memory runs out, they are told.
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

std::unique_ptr<comm::Channel> open_channel(const draft::Options &options, draft::Settings &settings) {
  std::unique_ptr<comm::Channel> channel = comm::open(request_of(settings.ranks));
  settings.ranks.rank = channel->rank();
  settings.ranks.count = channel->ranks();
  settings.ranks.reaches_devices = false;  // MPI and Gloo do not
  if (channel->ranks() == 1) return channel;
  std::map<std::string, std::string> texts;
  for (const draft::OptionRow &row : draft::option_table())
    if (const std::string key(row.key); !is_own(key)) texts[key] = options.get(key);
  together(*channel, [&] { draft::require_same(*channel, texts); });
  return channel;
}

struct Ranks::Ready {
  Call call;
  bool cancelled, failed;
  Terms terms;
};

// What rank 0 asks of the others: their parts of an array, or to end.
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
  if (std::ranges::any_of(all, &Ready::failed)) {
    const std::vector<std::string> texts = comm::gather_texts(channel_, own ? own->text : "");
    if (own) throw std::move(*own);
    const auto first = static_cast<std::size_t>(std::ranges::find(all, true, &Ready::failed) - all.begin());
    fail(Code::peer, subject_of(first), "rank {} could not begin its call: {}", first, texts[first]);
  }
  for (std::size_t r = 1; r < all.size(); ++r) {
    require(all[r].call == all[0].call, Code::state, subject_of(r),
            "rank {} calls {} while rank 0 calls {}; all ranks must make the same calls in the same order", r,
            kCallNames[static_cast<int>(all[r].call)], kCallNames[static_cast<int>(all[0].call)]);
    require(all[r].terms == all[0].terms, Code::mismatch, subject_of(r),
            "rank {} and rank 0 differ in the step, the learning rate, the shapes of their inputs or the parameter", r);
  }
  if (std::ranges::any_of(all, &Ready::cancelled)) throw Error(Code::cancelled, "", "cancelled before the call began");
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
    comm::broadcast_text(channel_, error.what());
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
