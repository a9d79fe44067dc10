// Ranks: the agreement of several ranks about their calls. With one rank nothing is exchanged.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/channel.h"
#include "draft/options.h"
#include "session/parameters.h"
#include "state/checkpoint.h"

namespace protrain::session {

// The calls that all ranks must make together.
enum class Call : std::uint8_t { step, evaluate, read, write, read_grad, save, export_model };

// Opens the channel of a session and checks that all ranks have the same options. Sets rank and count of `settings` to
// the channel's.
std::unique_ptr<comm::Channel> open_channel(const draft::Options &options, draft::Settings &settings);

class Ranks {
 public:
  explicit Ranks(comm::Channel &channel) : channel_(channel) {}

  int rank() const { return channel_.rank(); }
  int count() const { return channel_.ranks(); }
  bool several() const { return count() > 1; }

  // The numbers that all ranks must have the same when they make a call.
  struct Terms {
    std::uint64_t step = 0, micro_batch = 0;
    std::uint64_t subject = 0;  // the parameter, or the shape variant of the inputs
    double learning_rate = 0;
    bool operator==(const Terms &) const = default;
  };
  // Returns once all ranks are ready for the same call. prepare() checks this rank's arguments and returns its terms;
  // it must change nothing. If it throws, this call throws that error here and Code::peer on the other ranks, and the
  // session stays as it was. Code::state if ranks make different calls, Code::mismatch if their terms differ,
  // Code::cancelled on all ranks if one was cancelled.
  void meet(Call call, bool cancelled, const std::function<Terms()> &prepare);

  // Runs work(read) on rank 0, which may read any part of the parameters; the other ranks send what they have of them.
  // Returns on every rank what work returns. If it throws, the other ranks throw Code::peer, and the session stays as
  // it was.
  std::string on_rank_0(Parameters &parameters, const std::function<std::string(const state::Read &read)> &work);

 private:
  struct Ready;
  struct Request;

  void agree(Call call, bool cancelled, const std::function<Terms()> &prepare);
  std::string lead(Parameters &parameters, const std::function<std::string(const state::Read &read)> &work);
  std::string serve(Parameters &parameters);
  void send_request(const Request &request);
  Request receive_request();

  comm::Channel &channel_;
};

}  // namespace protrain::session
