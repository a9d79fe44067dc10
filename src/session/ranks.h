// Ranks: the agreement of several ranks about their calls. With one rank nothing is exchanged.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/channel.h"
#include "draft/options.h"
#include "session/parameters.h"
#include "state/checkpoint.h"

namespace protrain::session {

// The calls that all ranks must make together.
enum class Call : std::uint8_t { step, evaluate, predict, read, write, read_grad, save, export_model, use_adapters };

// The channels between the ranks of a session. Both are the same channel, unless NCCL carries the exchanges of a step.
struct Channels {
  std::shared_ptr<comm::Channel> hosts;  // moves bytes of the hosts' memory
  std::shared_ptr<comm::Channel> steps;  // for the exchanges of a step; its abort() also aborts `hosts`
  std::string why_not_nccl;              // the reason, if the ranks compute on several GPUs without NCCL; else ""

  static Channels over(std::shared_ptr<comm::Channel> channel) { return {channel, channel, {}}; }
};

// Opens the channel between the hosts and checks that all ranks have the same options. Sets this rank's number and the
// number of ranks in `settings`.
Channels open_channels(const draft::Options &options, draft::Settings &settings);

// Returns the device of this rank. "cuda" gives each rank of a machine a GPU of its own. Every rank must call it.
std::string device_of_rank(comm::Channel &hosts, const std::string &device);

// Opens NCCL's channel if the ranks compute on GPUs that it reaches, and notes in `settings` that messages may lie in
// the device's memory. Every rank must call it. With comm=nccl it throws Code::unsupported where NCCL cannot be used.
void add_step_channel(Channels &channels, const backend::DeviceInfo &device, draft::Settings &settings);

class Ranks {
 public:
  explicit Ranks(comm::Channel &channel) : channel_(channel) {}

  int rank() const { return channel_.rank(); }
  int count() const { return channel_.ranks(); }
  bool several() const { return count() > 1; }

  // The numbers that must be the same on all ranks that make a call.
  struct Terms {
    std::uint64_t step = 0, micro_batch = 0;
    std::uint64_t subject = 0;  // the parameter, or the shape variant of the inputs
    double learning_rate = 0;
    bool operator==(const Terms &) const = default;
  };
  // Returns once all ranks are ready for the same call. prepare() checks this rank's arguments and returns this rank's
  // terms. It must change nothing.
  //   If prepare() throws an Error, meet() throws this Error here and Code::peer on the other ranks, and the session
  // stays as it was. Throws Code::state if ranks make different calls, and Code::mismatch if their terms differ. With
  // several ranks, throws Code::cancelled on all of them if `cancelled` is true on one. With one rank, ignores
  // `cancelled`.
  void meet(Call call, bool cancelled, const std::function<Terms()> &prepare);

  // The result of evaluating this rank's batch.
  struct Evaluated {
    bool finite = true;
    float loss = 0;
    double weight = 1;
  };
  // Returns the weighted mean of all ranks' losses, summed in the order of ranks. With one rank, returns this rank's
  // loss. Throws Code::nonfinite on all ranks, with the subject "loss" if a loss or the sum of the weights is not
  // finite, and with the subject "targets" if the weights add up to 0.
  float mean(const Evaluated &own);

  // Runs work(pulse) on every rank and returns the results of all ranks. If work throws on a rank, that error is thrown
  // there and Code::peer on the others, and the session stays as it was. Long work must call pulse() now and then.
  // pulse() waits for the other ranks, so that none waits beyond its deadline, and throws if a rank has failed.
  using Pulse = std::function<void()>;
  std::vector<std::string> on_all(const std::function<std::string(const Pulse &pulse)> &work);

  // Runs work(read) on rank 0 and returns its result on every rank. With `read`, rank 0 may read any part of the
  // parameters. The other ranks send the elements of that part that they own. If work throws, the other ranks throw
  // Code::peer, and the session stays as it was.
  std::string on_rank_0(Parameters &parameters, const std::function<std::string(const state::Read &read)> &work);

 private:
  struct Ready;
  struct Request;
  enum class Progress : std::uint8_t { working, done, failed };

  void agree(Call call, bool cancelled, const std::function<Terms()> &prepare);
  std::vector<std::string> work_on_all(const std::function<std::string(const Pulse &pulse)> &work);
  [[noreturn]] void fail_on_all(const std::vector<bool> &failed, const char *what, const std::optional<Error> &own);
  std::string lead(Parameters &parameters, const std::function<std::string(const state::Read &read)> &work);
  std::string serve(Parameters &parameters);
  void send_request(const Request &request);
  Request receive_request();

  comm::Channel &channel_;
};

}  // namespace protrain::session
