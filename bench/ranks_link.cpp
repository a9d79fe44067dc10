// Compares the predicted time of a step with the measured one, for two ranks over a link of a stated speed. The ranks
// are threads of this process. An exchange sleeps as long as the link would take.
//   bench_ranks_link MODEL.onnx [key=value...]
// This program takes the keys link (bytes per second, 1e9), link_seconds (1e-3), rounds (1) and steps (5). All other
// keys are options of the sessions. It prints one JSON line for each plan and round. A line has the seconds of each
// step except the first two, and says how long compute, exchanges and waits took in the last step.
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <thread>

#include "base/error.h"
#include "session/session.h"

namespace {

using namespace protrain;
using Clock = std::chrono::steady_clock;
using Record = nlohmann::ordered_json;
using Pairs = std::vector<std::pair<std::string, std::string>>;

constexpr int kRanks = 2, kUnsettled = 2;

struct Link {
  double bytes_per_second = 1e9, seconds = 1e-3;
};

// Ranks that are threads of this process, with an imagined link between them. An exchange begins when the last rank has
// arrived. That rank copies the messages of all ranks. Then all ranks sleep until the link would have carried the
// messages.
class LinkedRanks {
 public:
  LinkedRanks(int ranks, const Link &link) : link_(link), parts_(static_cast<std::size_t>(ranks)) {}

  int ranks() const { return static_cast<int>(parts_.size()); }

  void exchange(int rank, std::span<const comm::Send> sends, std::span<const comm::Receive> receives) {
    const double bytes = std::max(sum_of(sends), sum_of(receives));
    const std::chrono::duration<double> seconds(link_.seconds + bytes / link_.bytes_per_second);
    const Clock::time_point begun = meet(rank, {sends, receives});
    std::this_thread::sleep_until(begun + std::chrono::duration_cast<Clock::duration>(seconds));
  }

  void throw_if_left() {
    const std::lock_guard lock(mutex_);
    require(left_.empty(), Code::peer, "comm", "another rank failed: {}", left_);
  }

  void leave(const std::string &reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (left_.empty()) left_ = reason;
    changed_.notify_all();
  }

 private:
  struct Parts {
    std::span<const comm::Send> sends;
    std::span<const comm::Receive> receives;
  };

  static double sum_of(const auto &parts) {
    double bytes = 0;
    for (const auto &part : parts) bytes += static_cast<double>(part.bytes);
    return bytes;
  }

  // Waits until all ranks have arrived and all messages are copied. Returns the time at which the last rank arrived.
  Clock::time_point meet(int rank, const Parts &parts) {
    std::unique_lock lock(mutex_);
    parts_[static_cast<std::size_t>(rank)] = parts;
    const std::uint64_t meeting = meetings_;
    if (++came_ < ranks()) {
      changed_.wait(lock, [&] { return meetings_ > meeting || !left_.empty(); });
      require(meetings_ > meeting, Code::peer, "comm", "a rank failed: {}", left_);
      return last_came_;
    }
    last_came_ = Clock::now();
    for (int to = 0; to < ranks(); ++to) copy_to(to);
    came_ = 0;
    ++meetings_;
    changed_.notify_all();
    return last_came_;
  }

  void copy_to(int rank) const {
    std::map<int, std::size_t> taken;
    for (const comm::Receive &receive : parts_[static_cast<std::size_t>(rank)].receives) {
      const comm::Send &send = sent_to(rank, receive.rank, taken[receive.rank]++);
      require(send.bytes == receive.bytes, Code::internal, "comm", "the sizes of a message differ");
      std::memcpy(receive.data, send.data, receive.bytes);
    }
  }

  const comm::Send &sent_to(int rank, int from, std::size_t which) const {
    for (const comm::Send &send : parts_[static_cast<std::size_t>(from)].sends)
      if (send.rank == rank && which-- == 0) return send;
    fail(Code::internal, "comm", "a message was not sent");
  }

  const Link &link_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Parts> parts_;  // per rank, of the exchange that begins
  int came_ = 0;
  std::uint64_t meetings_ = 0;
  Clock::time_point last_came_;
  std::string left_;  // why a rank left; "": none did
};

class LinkedChannel final : public comm::Channel {
 public:
  LinkedChannel(LinkedRanks &ranks, int rank) : ranks_(ranks), rank_(rank) {}
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_.ranks(); }
  void exchange(std::span<const comm::Send> sends, std::span<const comm::Receive> receives) override {
    ranks_.exchange(rank_, sends, receives);
  }
  void abort(const std::string &reason) noexcept override { ranks_.leave(reason); }
  void throw_if_failed() override { ranks_.throw_if_left(); }

 private:
  LinkedRanks &ranks_;
  const int rank_;
};

// A plan, and the options that it needs.
struct Planned {
  std::string plan;
  Pairs options;
  int micro_batches = 1;
};

const Pairs kApart = {{"device_memory", "5GiB"}, {"host_memory", "4GiB"}};

const std::vector<Planned> kPlans = {
    {R"("n_persist": 99)", {}},
    {R"("n_persist": 99, "n_whole": 0, "n_buffer": 4)", {}},
    {R"("n_persist": 99, "n_whole": 8, "n_buffer": 2)", {}},
    {R"("n_persist": 99, "n_checkpoint": 12)", {}},
    {R"("n_persist": 99, "n_selective": 12, "optimizer_order": "barrier")", {}},
    {R"("n_persist": 99, "n_whole": 0, "n_buffer": 2, "n_checkpoint": 12)", {}},
    {R"("n_persist": 8, "n_buffer": 8, "n_checkpoint": 6)", {}},
    {R"("n_persist": 0, "n_buffer": 4)", kApart},
    {R"("n_persist": 8, "n_buffer": 4, "n_checkpoint": 6)", kApart},
    {R"("n_persist": 99)", {{"accumulation", "2"}}, 2},
};

struct Bench {
  std::string model, folder;
  Pairs options;
  Link link;
  int steps = 5;
};

draft::Settings settings_of(const Bench &bench, const Planned &planned, const comm::Channel &channel) {
  draft::Options options;
  for (const auto *more : {&bench.options, &planned.options})
    for (const auto &[key, value] : *more) options.set(key, value);
  options.set("plan", bench.folder + "/plan.json");
  options.set("profile_dir", bench.folder);
  draft::Settings settings = draft::settings_of(options);
  settings.ranks.rank = channel.rank();
  settings.ranks.count = channel.ranks();
  settings.ranks.reaches_devices = false;
  return settings;
}

// Gives every input random tokens.
void feed(session::Session &session) {
  std::mt19937 random(1);
  for (std::size_t i = 0; i < session.input_count(); ++i) {
    const Shape shape = session.input_shape(i);
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(element_count(shape)));
    for (std::int64_t &token : tokens) token = std::uniform_int_distribution<std::int64_t>(0, 49999)(random);
    session.set_input(session.input_name(i), DType::i64, shape, tokens.data());
  }
}

// Trains as one rank. Returns the seconds of each step after the first kUnsettled, and the figures of the last step.
Record train(const Bench &bench, const Planned &planned, const std::shared_ptr<comm::Channel> &channel) {
  Record found;
  const draft::Log log = [&](const std::string &text) {
    const Record event = Record::parse(text);
    if (event.at("event") == "created") found["predicted_seconds"] = event.at("predicted_seconds");
  };
  const draft::Settings settings = settings_of(bench, planned, *channel);
  session::Session session(settings, bench.model, draft::open_device(settings), session::Channels::over(channel), log,
                           nullptr);
  feed(session);
  for (int i = 0; i < bench.steps + kUnsettled; ++i) {
    const auto start = Clock::now();
    for (int k = 0; k < planned.micro_batches; ++k) session.step();
    if (i >= kUnsettled) found["seconds"].push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  const Record report = Record::parse(session.report_json());
  for (const char *key : {"predicted", "measured"})
    for (const char *of : {"busy_seconds", "stall_seconds"}) found[key][of] = report.at(key).at(of);
  return found;
}

// Trains under the plan and returns rank 0's figures.
Record measured(const Bench &bench, const Planned &planned) {
  std::ofstream(bench.folder + "/plan.json") << "{" << planned.plan << R"(, "chunk_bytes": "16MiB"})";
  LinkedRanks ranks(kRanks, bench.link);
  std::vector<Record> found(kRanks);
  std::vector<std::exception_ptr> errors(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank, at = static_cast<std::size_t>(rank)] {
      const auto channel = std::make_shared<LinkedChannel>(ranks, rank);
      try {
        found[at] = train(bench, planned, channel);
      } catch (const std::exception &error) {
        errors[at] = std::current_exception();
        channel->abort(error.what());
      }
    });
  for (std::thread &thread : threads) thread.join();
  for (const std::exception_ptr &error : errors)
    if (error) std::rethrow_exception(error);
  Record line = {{"plan", Record::parse("{" + planned.plan + "}")}, {"options", planned.options}};
  line.update(found[0]);
  return line;
}

}  // namespace

int main(int argc, char **argv) {
  try {
    Bench bench{.model = argc > 1 ? argv[1] : "", .folder = std::filesystem::temp_directory_path() / "ranks_link"};
    bench.options = {{"threads", "1"}};
    double rounds = 1, steps = bench.steps;
    const std::map<std::string, double *> own = {{"link", &bench.link.bytes_per_second},
                                                 {"link_seconds", &bench.link.seconds},
                                                 {"rounds", &rounds},
                                                 {"steps", &steps}};
    for (int i = 2; i < argc; ++i) {
      const std::string text = argv[i];
      const std::size_t equals = std::min(text.find('='), text.size());
      const std::string key = text.substr(0, equals), value = text.substr(std::min(equals + 1, text.size()));
      if (const auto found = own.find(key); found != own.end())
        *found->second = std::stod(value);
      else
        bench.options.emplace_back(key, value);
    }
    bench.steps = static_cast<int>(steps);
    for (int round = 0; round < static_cast<int>(rounds); ++round) {
      std::filesystem::remove_all(bench.folder);  // the machine is measured anew
      std::filesystem::create_directories(bench.folder);
      for (const Planned &planned : kPlans) {
        Record line = measured(bench, planned);
        line["round"] = round;
        fmt::print("{}\n", line.dump());
        std::fflush(stdout);
      }
    }
  } catch (const Error &error) {
    fmt::print(stderr, "bench_ranks_link: {}: {}\n", error.subject, error.text);
    return 1;
  }
  return 0;
}
