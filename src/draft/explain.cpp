#include "draft/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "measure/contention.h"
#include "program/summary.h"

namespace protrain::draft {

namespace {

// Returns a text such as "1 chunk" or "3 chunks".
std::string counted(std::uint64_t count, const char *what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// Returns a text such as "3.42 s" or "12.3 ms".
std::string seconds_text(double seconds) {
  return seconds >= 1 ? fmt::format("{:.2f} s", seconds) : fmt::format("{:.3g} ms", seconds * 1e3);
}

// Returns the numbers in which `other` differs from the chosen plan, such as "n_buffer 17 instead of 36, n_host 4
// instead of 0".
std::string differences(const plan::Choice &chosen, const plan::Choice &other) {
  using plan::Choice;
  constexpr std::pair<const char *, int Choice::*> kNumbers[] = {
      {"n_persist", &Choice::n_persist},   {"n_host", &Choice::n_host},
      {"n_buffer", &Choice::n_buffer},     {"n_device_update", &Choice::n_device_update},
      {"n_deferred", &Choice::n_deferred}, {"n_checkpoint", &Choice::n_checkpoint},
      {"n_swap", &Choice::n_swap},         {"n_selective", &Choice::n_selective},
      {"n_whole", &Choice::n_whole},       {"slack", &Choice::slack}};
  const auto number = [](int value) { return value < 0 ? "all" : fmt::format("{}", value); };
  std::vector<std::string> texts;
  const auto add = [&](const char *name, const std::string &now, const std::string &then) {
    if (now != then) texts.push_back(fmt::format("{} {} instead of {}", name, then, now));
  };
  for (const auto &[name, member] : kNumbers) add(name, number(chosen.*member), number(other.*member));
  add("chunk_bytes", bytes_text(chosen.chunk_bytes), bytes_text(other.chunk_bytes));
  add("piece_bytes", bytes_text(chosen.piece_bytes), bytes_text(other.piece_bytes));
  const auto order = [](const Choice &choice) { return plan::kOrderNames[static_cast<int>(choice.order)]; };
  add("optimizer_order", order(chosen), order(other));
  return fmt::format("{}", fmt::join(texts, ", "));
}

double seconds_of(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// Turns a draft into sentences: memory, weights, activations, time, the bottleneck, and other plans. It reads only the
// draft, with its simulated step, and the alternatives.
class Explanation {
 public:
  explicit Explanation(const Draft &draft)
      : draft_(draft),
        plan_(draft.decision.plan),
        program_(draft.programs.variants[0].step),
        predicted_(draft.simulations[0]),
        summary_(program::summarize(program_, program::spans_of(predicted_.step),
                                    program::queues_of(draft.profile).beside, predicted_.step.step_ns)) {}

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

  bool trains() const { return draft_.settings.trains; }
  const char *a_run() const { return trains() ? "a step" : "an evaluation"; }

  std::uint64_t count(Tier tier) const {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(plan_.chunks, [&](const plan::Chunk &chunk) { return chunk.tier == tier; }));
  }

  void memory() {
    const auto &[device, host, disk] = draft_.programs.bytes.values;
    const auto &[device_budget, host_budget, disk_budget] = draft_.budget.bytes.values;
    std::string text = fmt::format("Memory: {} of {}{}", bytes_text(device), bytes_text(device_budget),
                                   plan_.shared_memory ? "" : " on the device");
    if (!plan_.shared_memory && host > 0)
      text += fmt::format(", {} of {} on the host", bytes_text(host), bytes_text(host_budget));
    if (disk > 0) text += fmt::format(", {} of {} on disk", bytes_text(disk), bytes_text(disk_budget));
    say("{}.", text);
  }

  void weights() {
    const std::uint64_t all = plan_.chunks.size(), host = count(Tier::host), disk = count(Tier::disk);
    const char *what = trains() ? "Weights and optimizer state" : "Weights";
    if (host + disk == 0) return say("{} stay in memory; {} does not move them.", what, a_run());
    std::uint64_t bytes = 0;
    for (const plan::Chunk &chunk : plan_.chunks) bytes += chunk.bytes;
    std::string text = fmt::format("{} are cut into {} of about {} of weights: {} on the device (n_persist)", what,
                                   counted(all, "chunk"), bytes_text(bytes / all), plan_.n_persist);
    if (host > 0) text += fmt::format(", {} on the host", host);
    if (disk > 0) text += fmt::format(", {} on disk", disk);
    say("{}. At most {} of the others {} on the device at a time (n_buffer){}{}.", text, std::max(plan_.n_buffer, 1),
        plan_.n_buffer > 1 ? "are" : "is", trains() ? optimizer_of_others() : "", deferred_updates());
  }

  std::string deferred_updates() const {
    std::size_t deferred = 0;
    for (const plan::Chunk &chunk : plan_.chunks) deferred += chunk.tier != Tier::device && chunk.deferred;
    if (deferred == 0) return "";
    return fmt::format(", of {} while the next step's forward computes (n_deferred)", counted(deferred, "chunk"));
  }

  std::string optimizer_of_others() const {
    std::size_t on_device = 0, others = 0;
    for (const plan::Chunk &chunk : plan_.chunks) {
      if (chunk.tier == Tier::device) continue;
      ++others;
      on_device += chunk.update == Tier::device;
    }
    if (on_device == 0 || on_device == others)
      return fmt::format("; their optimizer runs on the {}", on_device > 0 ? "device" : "host");
    return fmt::format("; the optimizer of {} of them runs on the device (n_device_update), of {} on the host",
                       on_device, others - on_device);
  }

  void activations() {
    if (!trains()) return;  // nothing is kept for a backward
    const std::size_t blocks = plan_.blocks.size();
    if (blocks == 0) return say("No blocks were found: all activations stay on the device.");
    const auto keep = static_cast<int>(blocks) - plan_.n_checkpoint - plan_.n_swap;
    const std::string some = plan_.n_selective < keep ? fmt::format(" in {} of them", plan_.n_selective) : "";
    const std::string all_but =
        plan_.n_selective > 0 ? fmt::format(", but{} for what little work computes again (n_selective)", some) : "";
    if (keep == static_cast<int>(blocks))
      return say("The activations of all {} stay{}.", counted(blocks, "block"), all_but);
    std::string text = fmt::format("Of {} the activations of {} stay{}", counted(blocks, "block"), keep, all_but);
    if (plan_.n_checkpoint > 0)
      text += fmt::format(", those of {} are computed again in backward (n_checkpoint)", plan_.n_checkpoint);
    if (plan_.n_swap > 0)
      text += fmt::format(", those of {} go to the {} and back (n_swap)", plan_.n_swap,
                          plan_.shared_memory ? "disk" : "host");
    say("{}.", text);
  }

  // Returns the stalls of compute and their causes, longest first. Leaves out stalls of less than a thousandth of the
  // step.
  std::vector<std::pair<std::int64_t, std::string>> waits() const {
    std::vector<std::pair<std::int64_t, std::string>> found;
    for (const program::Stall s : program::kStalls)
      if (seconds_of(summary_.stall_ns[s]) * 1000 >= seconds_of(summary_.step_ns))
        found.emplace_back(summary_.stall_ns[s], kReasons[s]);
    std::ranges::sort(found, std::greater<>());
    return found;
  }

  // Returns the text that follows the device's compute time and says how much of this time recomputes activations, such
  // as " (3.4 ms of it activations a second time)". Returns "" if no activations are recomputed.
  std::string again() const {
    std::int64_t again_ns = 0;
    for (std::size_t i = 0; i < program_.instructions.size(); ++i)
      if (program_.instructions[i].again)
        again_ns += predicted_.step.entries[i].end_ns - predicted_.step.entries[i].start_ns;
    if (again_ns == 0) return "";
    return fmt::format(" ({} of it activations a second time)", seconds_text(seconds_of(again_ns)));
  }

  std::string idle() const {
    std::int64_t idle_ns = 0;
    std::string causes;
    for (const auto &[ns, what] : waits()) {
      idle_ns += ns;
      causes += fmt::format("{}{} {}", causes.empty() ? "" : ", ", seconds_text(seconds_of(ns)), what);
    }
    if (idle_ns == 0) return " and never idles";
    return fmt::format(" and idles for {}: {}", seconds_text(seconds_of(idle_ns)), causes);
  }

  void time() {
    say("{} is expected to take {}: the device computes for {}{}{}.", trains() ? "A step" : "An evaluation",
        seconds_text(predicted_.seconds(draft_.accumulation)),
        seconds_text(seconds_of(summary_.busy_ns[Queue::compute])), again(), idle());
    if (draft_.settings.hardware.empty() && draft_.profile.waited > measure::kMostWaited)
      say("Its parts were measured while other processes used the cores. Our threads waited for {:.0f} % of that time, "
          "so times are too long. A later session that starts while the cores are idle measures again.",
          100 * draft_.profile.waited);
  }

  static constexpr program::PerStall<const char *> kReasons = {"for the optimizer on the host",
                                                               "for weights and state to the device",
                                                               "for gradients and state to the host",
                                                               "for activations to leave",
                                                               "for activations to come back",
                                                               "for reads from the disk",
                                                               "for writes to the disk",
                                                               "for gradients of the other ranks",
                                                               "for weights of the other ranks",
                                                               "while copies or updates run in its place",
                                                               "before it can start",
                                                               "after its last kernel",
                                                               "for instructions to be issued"};

  void bound() {
    constexpr double kSaturated = 0.9;
    constexpr PerQueue<const char *> kWhat = {
        "compute", "copies to the device", "copies to the host", "the host's optimizer", "", "", "other ranks"};
    std::vector<std::pair<double, std::string>> shares;
    const auto share_of = [&](std::int64_t ns) {
      return static_cast<double>(ns) / static_cast<double>(summary_.step_ns);
    };
    const auto add = [&](double share, const std::string &what, const std::string &details = "") {
      if (share > 0.005) shares.emplace_back(share, fmt::format("{} {:.0f} %{}", what, share * 100, details));
    };
    for (const Queue q : kQueues)
      if (!is_of_disk(q)) add(share_of(summary_.busy_ns[q]), kWhat[q]);
    add(share_of(program::disk_busy_ns(program_, program::spans_of(predicted_.step))), "the disk",
        fmt::format(" (reads {:.0f} %, writes {:.0f} %)", share_of(summary_.busy_ns[Queue::disk_read]) * 100,
                    share_of(summary_.busy_ns[Queue::disk_write]) * 100));
    std::ranges::sort(shares, std::greater<>());
    std::string all;
    for (const auto &[share, text] : shares) all += (all.empty() ? "" : ", ") + text;
    const auto longest = waits();
    if (longest.empty() || (!shares.empty() && shares.front().first >= kSaturated))
      say("The bottleneck is the busiest part: {}.", all);
    else
      say("No part is busy all of the time ({}). The longest wait is {}.", all.empty() ? "none for long" : all,
          longest.front().second);
  }

  // True if a change of a step's time, in percent, would be printed as 0.
  static bool as_long(double change) { return std::abs(change) < 0.5; }

  void say_change(const Alternative &other) {
    const double chosen = draft_.decision.found.best->cost.seconds;
    const double change = (other.seconds / other.samples * draft_.samples() / chosen - 1) * 100;
    const char *unit = draft_.tokens() > 0 ? "token" : "sample";
    if (as_long(change)) return say("With {}, planned anew, a {} would take as long as now.", other.change, unit);
    say("With {}, planned anew, a {} would take {:.0f} % {} time.", other.change, unit, std::abs(change),
        change < 0 ? "less" : "more");
  }

  void others(const std::vector<Alternative> &alternatives) {
    const plan::SearchResult &found = draft_.decision.found;
    if (!found.best) return;
    const double chosen = found.best->cost.seconds;
    const auto slower = [&](double seconds) { return (seconds / chosen - 1) * 100; };
    if (found.next) {
      const double change = slower(found.next->cost.seconds);
      say("Of {} plans that were ranked and {} laid out and simulated, the next best ({}) takes {}.", found.ranked,
          found.laid_out, differences(found.best->choice, found.next->choice),
          change < 0.05 ? "as long as this one" : fmt::format("{:.1f} % longer", change));
    }
    if (found.resident && found.resident->cost.bytes != found.best->cost.bytes) {
      const double change = slower(found.resident->cost.seconds);
      const std::string bytes = bytes_text(found.resident->cost.bytes[Tier::device]);
      const std::string seconds = fmt::format("{} {} ({})", seconds_text(found.resident->cost.seconds), a_run(),
                                              as_long(change) ? "as now" : fmt::format("{:+.0f} %", change));
      if (found.all_fits)
        say("Keeping all activations (a plan with n_selective 0) would take {}, which is available: {}.", bytes,
            seconds);
      else
        say("If {} had {} nothing would move{}: {}.", plan_.shared_memory ? "memory" : "the device", bytes,
            trains() ? " and nothing be computed again" : "", seconds);
    }
    for (const Alternative &other : alternatives)
      if (other.seconds > 0)
        say_change(other);
      else
        say("With {} no plan would fit.", other.change);
  }

  const Draft &draft_;
  const plan::Plan &plan_;
  const program::Program &program_;
  const StepSimulation &predicted_;
  const program::Summary summary_;
  std::vector<std::string> sentences_;
};

}  // namespace

std::vector<std::string> explain(const Draft &draft, const std::vector<Alternative> &alternatives) {
  return Explanation(draft).run(alternatives);
}

}  // namespace protrain::draft
