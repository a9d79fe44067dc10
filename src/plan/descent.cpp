#include "plan/descent.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace protrain::plan {

namespace {

constexpr std::size_t kPairs = 24;  // limit of the pairs of steps that are tried from one plan

// The fields of a Choice that a step of the descent may change, except chunk_bytes.
constexpr int Choice::*kIntegers[] = {&Choice::n_persist,       &Choice::n_buffer,    &Choice::n_swap,
                                      &Choice::n_checkpoint,    &Choice::n_selective, &Choice::n_host,
                                      &Choice::n_device_update, &Choice::n_deferred,  &Choice::slack};

// Returns one choice for each number: a copy of `from` that change() changed by this number.
template <typename Change>
std::vector<Choice> changed(const Choice &from, std::initializer_list<int> numbers, Change &&change) {
  std::vector<Choice> to;
  for (const int number : numbers) change(to.emplace_back(from), number);
  return to;
}

// Returns copies of `from` in which the integer is greater or less by one of the lengths.
std::vector<Choice> along(const Choice &from, int Choice::*integer, std::initializer_list<int> lengths) {
  std::vector<Choice> to;
  for (const int length : lengths)
    std::ranges::copy(changed(from, {length, -length}, [&](Choice &other, int by) { other.*integer += by; }),
                      std::back_inserter(to));
  return to;
}

}  // namespace

Descent::Descent(const graph::Graph &graph, const Space &space, const Terms &terms, Trials &trials,
                 const LookAhead &look_ahead, std::size_t most)
    : space_(space), terms_(terms), trials_(trials), look_ahead_(look_ahead), most_(most) {
  for (const std::uint64_t bytes : space.chunk_bytes)
    chunks_.push_back(static_cast<int>(cut_chunks(graph, bytes).size()));
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const graph::Type &type = graph.value(graph.parameters[p]).type;
    resting_ += byte_count(type.dtype, type.shape);
    if (terms.trained[p]) resting_ += terms.optimizer.of(static_cast<std::uint64_t>(element_count(type.shape)));
  }
}

// Moves from `start` to the first faster choice that is one step away, then from this choice to the next, and so on.
// Tries the kind of step that helped last first, because it usually helps again. If no single step helps, tries pairs
// of steps, and ends if no pair helps either.
void Descent::from(const Choice &start) {
  const Trial *best = trials_.find(start);
  for (std::size_t kind = 0; best != nullptr;) {
    const auto steps_of = [&](std::size_t k) { return steps(best->candidate.choice, Step((kind + k) % kKinds)); };
    std::vector<Choice> single;
    for (std::size_t k = 0; k < kKinds; ++k) std::ranges::copy(steps_of(k), std::back_inserter(single));
    prepare(*best, single);
    const Trial *better = nullptr;
    std::size_t helped = 0;
    for (std::size_t k = 0; k < kKinds && better == nullptr; ++k) {
      better = faster(*best, steps_of(k));
      helped = k;
    }
    if (better == nullptr) {
      const std::vector<Choice> twofold = pairs(*best);
      prepare(*best, twofold);
      better = faster(*best, twofold);
    } else {
      kind = (kind + helped) % kKinds;
    }
    best = better;
  }
}

// Returns choices that are two steps of different kinds away from `from` and were not tried, the most promising first.
// The result of such a pair can be guessed from trials of its two steps: the pair changes seconds and bytes by as much
// as both steps together. Typically one step is faster but too large, and the other slower but smaller. If a pair
// leaves device memory free, more chunks persist, and each is guessed to save worth_of_chunk() seconds.
std::vector<Choice> Descent::pairs(const Trial &from) const {
  const std::vector<std::vector<const Trial *>> tried = tried_steps(from);
  const double worth = worth_of_chunk(from);
  std::vector<std::pair<double, Choice>> guesses;  // seconds
  for (std::size_t kind = 0; kind < kKinds; ++kind)
    for (std::size_t other = kind + 1; other < kKinds; ++other)
      for (const Trial *a : tried[kind])
        for (const Trial *b : tried[other]) {
          const auto change = [&](Tier t) {
            return static_cast<double>(b->cost.bytes[t]) - static_cast<double>(from.cost.bytes[t]);
          };
          Bytes bytes;
          for (const Tier t : kTiers) bytes[t] = shifted(a->cost.bytes[t], change(t));
          if (!fits(bytes, terms_.capacity)) continue;
          Choice choice = both(from.candidate.choice, a->candidate.choice, b->candidate.choice);
          const int more = chunks_that_fit(choice, bytes);
          choice.n_persist += more;
          guesses.emplace_back(a->cost.seconds + b->cost.seconds - from.cost.seconds - worth * more, choice);
        }
  std::ranges::stable_sort(guesses, {}, &std::pair<double, Choice>::first);
  std::vector<Choice> choices;
  for (auto &[seconds, choice] : guesses) {
    if (choices.size() == kPairs) break;
    const auto same = [&](const Choice &other) { return same_integers(choice, other); };
    if (settle(choice) && trials_.find(choice) == nullptr && std::ranges::none_of(choices, same))
      choices.push_back(choice);
  }
  return choices;
}

// Returns, for each kind of step, the trials that are one step away from `from`.
std::vector<std::vector<const Trial *>> Descent::tried_steps(const Trial &from) const {
  std::vector<std::vector<const Trial *>> tried(kKinds);
  for (std::size_t kind = 0; kind < kKinds; ++kind)
    for (Choice choice : steps(from.candidate.choice, Step(kind)))
      if (settle(choice))
        if (const Trial *trial = trials_.find(choice); trial != nullptr && trial != &from) tried[kind].push_back(trial);
  return tried;
}

// Returns the seconds by which a training step gets longer if one chunk fewer persists. Returns 0 if it gets no longer,
// or if that choice was not tried.
double Descent::worth_of_chunk(const Trial &from) const {
  Choice fewer = from.candidate.choice;
  --fewer.n_persist;
  const Trial *trial = settle(fewer) ? trials_.find(fewer) : nullptr;
  return trial != nullptr ? std::max(trial->cost.seconds - from.cost.seconds, 0.0) : 0;
}

// Returns the choice that two steps together lead to: the step from `from` to `a`, and the step from `from` to `b`.
Choice Descent::both(const Choice &from, const Choice &a, const Choice &b) const {
  const auto counted = [&](Choice choice) {
    if (choice.n_device_update < 0) choice.n_device_update = chunks_of(choice) - choice.n_persist;
    return choice;
  };
  const Choice start = counted(from), other = counted(b);
  Choice to = counted(a);
  for (int Choice::*integer : kIntegers) to.*integer += other.*integer - start.*integer;
  to.chunk_bytes += other.chunk_bytes - start.chunk_bytes;
  return to;
}

const Trial *Descent::faster(const Trial &than, const std::vector<Choice> &choices) {
  bool stopped = false;
  const auto cost_of = [&](const Choice &choice) -> const PlanCost * {
    if (const Trial *trial = trials_.find(choice)) return &trial->cost;
    stopped = trials_.instructions() >= most_;
    if (stopped) return nullptr;
    return &trials_.add({choice, {}}).cost;
  };
  for (Choice choice : choices) {
    if (leads_to_faster(than, choice, cost_of)) return trials_.find(choice);
    if (stopped) return nullptr;
  }
  return nullptr;
}

void Descent::prepare(const Trial &than, const std::vector<Choice> &choices) {
  if (!look_ahead_ || trials_.instructions() >= most_) return;
  const std::size_t affordable =
      (most_ - trials_.instructions()) / std::max<std::size_t>(than.cost.instructions, 1) + 1;
  look_ahead_(std::min(choices.size(), affordable), [&](std::size_t i) {
    PlanCost cost;
    Choice choice = choices[i];
    return leads_to_faster(than, choice, [&](const Choice &tried) {
      const Trial *trial = trials_.find(tried);
      cost = trial != nullptr ? trial->cost : trials_.lay_out(tried);
      return &cost;
    });
  });
}

template <typename CostOf>
bool Descent::leads_to_faster(const Trial &than, Choice &choice, CostOf &&cost_of) const {
  for (int tries = 0; tries < 2 && settle(choice); ++tries) {
    const PlanCost *cost = cost_of(choice);
    if (cost == nullptr) return false;
    if (fits(cost->bytes, terms_.capacity) && cost->seconds < than.cost.seconds) return true;
    const int more = chunks_that_fit(choice, cost->bytes);
    if (more == 0) return false;
    choice.n_persist += more;
  }
  return false;
}

// Returns by how much n_persist can grow if a plan takes `bytes` and leaves device memory free. If the plan takes more
// than the device has, the result is negative: n_persist must shrink by that much.
int Descent::chunks_that_fit(const Choice &choice, const Bytes &bytes) const {
  const double left = static_cast<double>(terms_.capacity[Tier::device]) - static_cast<double>(bytes[Tier::device]);
  return static_cast<int>(
      std::clamp(std::floor(left / (static_cast<double>(resting_) / chunks_of(choice))), -1e6, 1e6));
}

std::vector<Choice> Descent::steps(Choice from, Step kind) const {
  using enum Step;
  const int chunks = chunks_of(from);
  if (from.n_device_update < 0) from.n_device_update = chunks - from.n_persist;
  const int eighth = chunks / 8 + 1, quarter = chunks / 4 + 1;
  switch (kind) {
    case device_update:
      return along(from, &Choice::n_device_update, {eighth, 2, 1});
    case buffer:
      return along(from, &Choice::n_buffer, {quarter, eighth, 2});
    case checkpoint:
      return checkpoint_steps(from);
    case persist:
      return along(from, &Choice::n_persist, {eighth, 1});
    case swap:
      return swap_steps(from);
    case host:
      return along(from, &Choice::n_host, {eighth, 1});
    case slack:
      return changed(from, {1, 2, 4, 8}, [](Choice &to, int stages) { to.slack = stages; });
    case selective:
      return changed(from, {from.n_selective > 0 ? 0 : 1}, [](Choice &to, int some) { to.n_selective = some; });
    case deferred:
      if (!terms_.defer() || from.n_deferred < 0) return {};
      return along(from, &Choice::n_deferred, {quarter, 2, 1});
    case chunk_bytes:
      return chunk_steps(from);
    case to_host:
      // Updates that move to the host are deferred, because the host may have no time for them during backward. A
      // negative `by` moves deferred updates back to the device.
      if (!terms_.defer() || from.n_deferred < 0) return {};
      return changed(from, {eighth, 2, 1, -1, -2, -eighth}, [](Choice &to, int by) {
        to.n_device_update -= by;
        to.n_deferred += by;
      });
  }
  return {};
}

// Changes how many blocks recompute. While all blocks swap or recompute, n_selective is 0 and tells nothing. Blocks
// that then stop recomputing may keep everything, or may still recompute their cheap values, so both are steps.
std::vector<Choice> Descent::checkpoint_steps(const Choice &from) const {
  const int quarter = space_.blocks / 4 + 1;
  std::vector<Choice> to = along(from, &Choice::n_checkpoint, {quarter, 2, 1});
  if (from.n_swap + from.n_checkpoint == space_.blocks)
    std::ranges::copy(changed(from, {quarter, 2, 1},
                              [](Choice &fewer, int by) {
                                fewer.n_checkpoint -= by;
                                fewer.n_selective = 1;
                              }),
                      std::back_inserter(to));
  return to;
}

// Changes how many blocks swap, by one. The block that changes may recompute instead, or do neither.
std::vector<Choice> Descent::swap_steps(const Choice &from) {
  std::vector<Choice> to = along(from, &Choice::n_swap, {1});
  std::ranges::copy(changed(from, {1, -1},
                            [](Choice &other, int by) {
                              other.n_swap += by;
                              other.n_checkpoint -= by;
                            }),
                    std::back_inserter(to));
  return to;
}

std::vector<Choice> Descent::chunk_steps(const Choice &from) const {
  std::vector<Choice> to;
  for (const std::uint64_t bytes : space_.chunk_bytes) to.push_back(with_chunks_of(from, bytes));
  return to;
}

int Descent::chunks_of(const Choice &choice) const {
  const auto at = std::ranges::find(space_.chunk_bytes, choice.chunk_bytes) - space_.chunk_bytes.begin();
  return chunks_[static_cast<std::size_t>(at)];
}

// Returns `from` with another chunk size. Scales each integer that counts chunks to the new number of chunks.
Choice Descent::with_chunks_of(const Choice &from, std::uint64_t bytes) const {
  Choice to = from;
  to.chunk_bytes = bytes;
  const double ratio = static_cast<double>(chunks_of(to)) / chunks_of(from);
  for (int Choice::*integer :
       {&Choice::n_persist, &Choice::n_buffer, &Choice::n_host, &Choice::n_device_update, &Choice::n_deferred})
    if (from.*integer > 0) to.*integer = std::max(1, static_cast<int>(std::lround(from.*integer * ratio)));
  return to;
}

bool Descent::settle(Choice &choice) const {
  const int left = chunks_of(choice) - choice.n_persist;
  const int buffered = choice.n_whole == 0 ? chunks_of(choice) : left;
  if (choice.n_persist < 0 || left < 0 || buffered < 1 || choice.n_deferred < -1 || choice.n_buffer < 1 ||
      choice.n_buffer > buffered)
    return false;
  if (choice.n_swap < 0 || choice.n_swap > space_.most_swap) return false;
  if (choice.n_checkpoint < 0 || choice.n_swap + choice.n_checkpoint > space_.blocks) return false;
  if (choice.n_selective > 0) choice.n_selective = space_.blocks - choice.n_swap - choice.n_checkpoint;
  const bool disk = terms_.capacity[Tier::disk] > 0;
  choice.n_host = disk && choice.n_host >= 0 ? std::min(choice.n_host, left) : left;
  if (choice.n_device_update < 0) return false;
  if (choice.n_device_update >= left) choice.n_device_update = -1;
  choice.n_deferred = std::min(choice.n_deferred, left);
  return true;
}

}  // namespace protrain::plan
