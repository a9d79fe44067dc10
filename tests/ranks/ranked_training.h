// Training by several ranks, to be compared with training by one.
#pragma once

#include <mutex>

#include "random_plans/random_plan.h"
#include "ranks/thread_group.h"

namespace protrain::test {

struct Group {
  int ranks = 1, accumulation = 1, steps = 3;
};

// Creates a session for the model in a file.
inline std::unique_ptr<session::Session> session_at(const Pairs &pairs, const std::string &path,
                                                    std::shared_ptr<comm::Channel> channel) {
  draft::Settings settings = draft::settings_of(options_with(pairs));
  settings.ranks.rank = channel->rank();
  settings.ranks.count = channel->ranks();
  settings.ranks.reaches_devices = false;
  if (channel->ranks() > 1) settings.threads = 1;  // ranks share the cores; a rank alone has the same bits with several
  try {
    return std::make_unique<session::Session>(settings, path, draft::open_device(settings),
                                              session::Channels::over(channel), nullptr, nullptr);
  } catch (const std::exception &error) {
    channel->abort(error.what());
    throw;
  }
}

inline std::unique_ptr<session::Session> session_of(const Pairs &pairs, const std::string &model,
                                                    std::shared_ptr<comm::Channel> channel) {
  return session_at(pairs, fixture(model + ".onnx"), std::move(channel));
}

// Trains as one rank of a group. All ranks together take the same micro-batches as a single rank whose accumulation is
// group.ranks times as large.
inline Trace train_share(session::Session &session, const comm::Channel &channel, const Group &group,
                         int first_step = 0) {
  Trace trace;
  int micro_batch = first_step * group.ranks * group.accumulation + channel.rank();
  for (int i = 0; i < group.steps; ++i) {
    session::StepResult result;
    for (int k = 0; k < group.accumulation; ++k, micro_batch += channel.ranks()) {
      feed(session, micro_batch);
      result = session.step();
    }
    trace.losses.push_back(std::bit_cast<std::uint32_t>(result.loss));
    trace.norms.push_back(std::bit_cast<std::uint64_t>(result.grad_norm));
  }
  for (std::size_t p = 0; p < session.parameter_count(); ++p) {
    std::vector<float> &values =
        trace.parameters.emplace_back(static_cast<std::size_t>(element_count(session.parameter_shape(p))));
    session.read_parameter(session.parameter_name(p), values.data(), values.size());
  }
  return trace;
}

// Returns each rank's results. If ranks fail, throws the first error that is not merely another rank's failure.
inline std::vector<Trace> train_ranks(const Group &group, Pairs pairs, const std::string &model) {
  pairs.emplace_back("accumulation", std::to_string(group.accumulation));
  std::vector<Trace> traces(static_cast<std::size_t>(group.ranks));
  const auto errors = ThreadGroup(group.ranks).run([&](std::shared_ptr<comm::Channel> channel) {
    const auto session = session_of(pairs, model, channel);
    traces[static_cast<std::size_t>(channel->rank())] = train_share(*session, *channel, group);
  });
  for (const bool of_peers : {false, true})
    for (const std::exception_ptr &error : errors) {
      if (!error) continue;
      try {
        std::rethrow_exception(error);
      } catch (const Error &found) {
        if (of_peers || found.code != Code::peer) throw;
      }
    }
  return traces;
}

}  // namespace protrain::test
