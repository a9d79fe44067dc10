#include "session/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "program/summary.h"

namespace protrain::session {

namespace {

// "3.42 s", "12.3 ms".
std::string seconds_text(double seconds) {
  return seconds >= 1 ? fmt::format("{:.2f} s", seconds) : fmt::format("{:.3g} ms", seconds * 1e3);
}

double seconds_of(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

class Explanation {
 public:
  explicit Explanation(const Blueprint &blueprint)
      : blueprint_(blueprint),
        plan_(blueprint.chosen.plan),
        program_(blueprint.draft.programs[0].step),
        predicted_(blueprint.predicted[0]),
        summary_(program::summarize(program_, program::spans_of(predicted_.step),
                                    program::queues_of(blueprint.profile).beside, predicted_.step.step_ns)) {}

  std::vector<std::string> run(const std::vector<Alternative> &alternatives) {
    memory();
    weights();
    activations();
    time();
    bound();
    others(alternatives);
    return std::move(sentences_);
  }

 private:
  template <typename... Arguments>
  void say(fmt::format_string<Arguments...> format, Arguments &&...arguments) {
    sentences_.push_back(fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  std::uint64_t count(Tier tier) const {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(plan_.chunks, [&](const plan::Chunk &chunk) { return chunk.tier == tier; }));
  }

  void memory() {
    const auto &[device, host, disk] = blueprint_.draft.bytes;
    const auto &[device_budget, host_budget, disk_budget] = blueprint_.budget.bytes;
    std::string text = fmt::format("Memory: {} of {}{}", bytes_text(device), bytes_text(device_budget),
                                   plan_.shared_memory ? "" : " on the device");
    if (!plan_.shared_memory) text += fmt::format(", {} of {} on the host", bytes_text(host), bytes_text(host_budget));
    if (disk > 0) text += fmt::format(", {} of {} on disk", bytes_text(disk), bytes_text(disk_budget));
    say("{}.", text);
  }

  void weights() {
    const std::uint64_t all = plan_.chunks.size(), host = count(Tier::host), disk = count(Tier::disk);
    if (host + disk == 0) return say("Weights and optimizer state stay in memory: nothing of them moves in a step.");
    const char *optimizer = plan_.chunks.back().update == Tier::host ? "host" : "device";
    std::string text =
        fmt::format("Weights and optimizer state are cut into {} chunks: the first {} stay on the device (n_persist)",
                    all, plan_.n_persist);
    if (host > 0) text += fmt::format(", {} rest on the host", host);
    if (disk > 0) text += fmt::format(", {} rest on disk", disk);
    say("{} and pass through {} buffer{} (n_buffer); their optimizer runs on the {}.", text,
        std::max(plan_.n_buffer, 1), plan_.n_buffer > 1 ? "s" : "", optimizer);
  }

  void activations() {
    const std::size_t blocks = plan_.blocks.size();
    const auto keep = static_cast<int>(blocks) - plan_.n_checkpoint - plan_.n_swap;
    say("Activations of {} of {} blocks are kept, of {} computed again in backward (n_checkpoint), of {} swapped "
        "(n_swap).",
        keep, blocks, plan_.n_checkpoint, plan_.n_swap);
  }

  void time() {
    std::int64_t again = 0, waits = 0;
    for (std::size_t i = 0; i < program_.instructions.size(); ++i)
      if (program_.instructions[i].again)
        again += predicted_.step.entries[i].end_ns - predicted_.step.entries[i].start_ns;
    std::string causes;
    for (std::size_t s = program::kFirstStall; s < program::kStallCount; ++s) {
      if (summary_.stall_ns[s] * 1000 < summary_.step_ns) continue;
      waits += summary_.stall_ns[s];
      causes += fmt::format("{}{} {}", causes.empty() ? "" : ", ", program::name_of_stall(s),
                            seconds_text(seconds_of(summary_.stall_ns[s])));
    }
    const auto busy = summary_.busy_ns[static_cast<std::size_t>(Queue::compute)];
    say("A step takes {}: {} of compute ({} of it computes activations again){}.",
        seconds_text(predicted_.seconds(blueprint_.accumulation)), seconds_text(seconds_of(busy)),
        seconds_text(seconds_of(again)),
        waits > 0 ? fmt::format(" and {} in which it waits ({})", seconds_text(seconds_of(waits)), causes)
                  : std::string(" that waits for nothing"));
  }

  void bound() {
    const auto busiest =
        static_cast<std::size_t>(std::ranges::max_element(summary_.busy_ns) - summary_.busy_ns.begin());
    const double share = static_cast<double>(summary_.busy_ns[busiest]) / static_cast<double>(summary_.step_ns);
    constexpr const char *kWhat[kQueueCount] = {"computing",          "copies to the device",
                                                "copies to the host", "the optimizer on the host",
                                                "the disk",           "other ranks"};
    say("What binds is {}, busy {:.0f} % of the step.", kWhat[busiest], share * 100);
  }

  void others(const std::vector<Alternative> &alternatives) {
    const plan::Found &found = blueprint_.chosen.found;
    if (!found.best) return;
    const double chosen = found.best->laid_out.seconds;
    const auto slower = [&](double seconds) { return (seconds / chosen - 1) * 100; };
    if (found.next) {
      const plan::Choice &next = found.next->choice;
      say("The next best of {} plans that were laid out (n_persist {}, n_buffer {}, n_checkpoint {}, n_swap {}) takes "
          "{:.1f} % longer.",
          found.laid_out, next.n_persist, next.n_buffer, next.n_checkpoint, next.n_swap,
          slower(found.next->laid_out.seconds));
    }
    if (found.resident && found.resident->laid_out.bytes != found.best->laid_out.bytes)
      say("With {} of memory nothing would move and nothing be computed again: {} a step, {:.0f} % less.",
          bytes_text(found.resident->laid_out.bytes[0]), seconds_text(found.resident->laid_out.seconds),
          -slower(found.resident->laid_out.seconds));
    for (const Alternative &other : alternatives)
      if (other.seconds > 0)
        say("With {} a step would take {} ({:+.0f} %).", other.change, seconds_text(other.seconds),
            slower(other.seconds));
      else
        say("With {} nothing would fit.", other.change);
  }

  const Blueprint &blueprint_;
  const plan::Plan &plan_;
  const program::Program &program_;
  const Predicted &predicted_;
  const program::Summary summary_;
  std::vector<std::string> sentences_;
};

}  // namespace

std::vector<std::string> explain(const Blueprint &blueprint, const std::vector<Alternative> &alternatives) {
  return Explanation(blueprint).run(alternatives);
}

}  // namespace protrain::session
