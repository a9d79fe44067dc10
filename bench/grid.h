// Grid: searches a space of plans that is too large to lay out whole. It first lays out a coarse grid. From the fastest
// points it then moves to better neighbours, along one integer or two at once, until no neighbour is faster.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "bench/space.h"

namespace protrain::bench {

// Grid finds a good plan independently of the search, so that the search's plan can be compared with it. Both use the
// simulator. Unlike the search, Grid ranks nothing by the closed form, and nothing limits its time.
class Grid {
 public:
  Grid(const Space &space, unsigned threads) : space_(space), threads_(threads) {}

  // Searches, and returns every point that was laid out.
  const std::vector<GridPoint> &run() {
    lay_out(points());
    for (std::size_t start = 0; start < kStarts; ++start) {
      const std::vector<GridPoint> starts = fitting();
      if (start < starts.size()) climb(starts[start]);
    }
    return laid_;
  }

 private:
  static constexpr std::size_t kStarts = 3;
  using Steps = std::vector<std::function<void(plan::Choice &)>>;

  // The coarse grid: the smallest and the largest chunk size, and up to nine values of each integer.
  std::vector<plan::Choice> points() const {
    std::vector<plan::Choice> all;
    const plan::Outline outline(space_.graph(), space_.durations());
    const plan::Space space = plan::space_of(space_.graph(), outline, space_.durations(), space_.terms);
    for (const std::uint64_t chunk_bytes : {space.chunk_bytes.front(), space.chunk_bytes.back()})
      for (const plan::Ordering &ordering : space.orderings)
        for (const int again : spread(space.blocks, 6))
          for (const bool selective : {false, true})
            add_chunks({.n_checkpoint = again,
                        .n_selective = selective ? space.blocks - again : 0,
                        .n_deferred = ordering.n_deferred,
                        .chunk_bytes = chunk_bytes,
                        .order = ordering.order},
                       all);
    return all;
  }

  static std::vector<int> spread(int last, int parts) {
    std::vector<int> values;
    for (int i = 0; i <= parts; ++i)
      if (const int value = last * i / parts; values.empty() || values.back() < value) values.push_back(value);
    return values;
  }

  void add_chunks(const plan::Choice &base, std::vector<plan::Choice> &all) const {
    plan::Choice choice = plan::with_terms(base, space_.terms);
    const int chunks = chunks_of(choice);
    const bool spreads = choice.order == plan::OptimizerOrder::overlap && !space_.terms.accumulates;
    for (choice.n_persist = 0; choice.n_persist < chunks; choice.n_persist += std::max(1, chunks / 8)) {
      const int left = chunks - choice.n_persist;
      choice.n_host = left;
      for (const int buffers : {2, 4, 8, 16, 32}) {
        choice.n_buffer = buffers;
        if (buffers > left || !can_fit(choice)) continue;
        for (const int on_device : spread(left, 4))
          for (const int deferred : spreads ? spread(left, 3) : std::vector{choice.n_deferred}) {
            all.push_back(choice);
            all.back().n_device_update = on_device;
            all.back().n_deferred = deferred;
          }
      }
    }
  }

  // True if the host has room for its chunks, and the device's chunks and buffers leave a tenth of the device's memory
  // free.
  bool can_fit(const plan::Choice &choice) const {
    const auto chunks = static_cast<std::uint64_t>(chunks_of(choice));
    const std::uint64_t weights = weights_bytes() / chunks, rest = resting_bytes() / chunks;
    const plan::Bytes &capacity = space_.terms.capacity;
    return rest * static_cast<std::uint64_t>(choice.n_persist) + weights * static_cast<std::uint64_t>(choice.n_buffer) <
               capacity[Tier::device] / 10 * 9 &&
           rest * static_cast<std::uint64_t>(choice.n_host) < capacity[Tier::host];
  }

  std::uint64_t weights_bytes() const {
    std::uint64_t bytes = 0;
    for (const plan::Chunk &chunk : plan::cut_chunks(space_.graph(), ~0ull)) bytes += chunk.bytes;
    return bytes;
  }

  std::uint64_t resting_bytes() const {
    std::uint64_t bytes = weights_bytes();
    for (std::size_t p = 0; p < space_.graph().parameters.size(); ++p)
      if (space_.terms.trained[p])
        bytes +=
            static_cast<std::uint64_t>(element_count(space_.graph().value(space_.graph().parameters[p]).type.shape)) *
            space_.terms.optimizer.state;
    return bytes;
  }

  int chunks_of(const plan::Choice &choice) const {
    return static_cast<int>(plan::cut_chunks(space_.graph(), choice.chunk_bytes).size());
  }

  // Moves from `at` to the fastest neighbour, again and again, until no neighbour is faster. Changes one integer at a
  // time. If that helps no more, and the point is within 5 % of the best so far, changes two integers at once.
  void climb(GridPoint at) {
    for (bool pairs = false;;) {
      lay_out(neighbours(at.choice, pairs));
      const GridPoint *best = fastest(laid_, space_.terms.capacity);
      const auto near = [&](const GridPoint &one) { return one.out.seconds < at.out.seconds; };
      const GridPoint *better = nullptr;
      for (const plan::Choice &choice : neighbours(at.choice, pairs))
        if (const GridPoint *one = find(choice);
            one != nullptr && near(*one) && fits(one->out.bytes, space_.terms.capacity))
          if (better == nullptr || one->out.seconds < better->out.seconds) better = one;
      if (better == nullptr && (pairs || at.out.seconds > 1.05 * best->out.seconds)) return;
      pairs = better == nullptr;
      if (better != nullptr) at = *better;
    }
  }

  std::vector<plan::Choice> neighbours(const plan::Choice &of, bool pairs) const {
    plan::Choice from = of;
    if (from.n_device_update < 0) from.n_device_update = from.n_host;
    const Steps steps = steps_of(from);
    std::vector<plan::Choice> all;
    for (std::size_t i = 0; i < steps.size(); ++i)
      for (std::size_t j = pairs ? i + 1 : i; j < (pairs ? steps.size() : i + 1); ++j) {
        plan::Choice to = from;
        steps[i](to);
        if (pairs) steps[j](to);
        if (settle(to, from.n_selective > 0)) all.push_back(to);
      }
    return all;
  }

  Steps steps_of(const plan::Choice &from) const {
    Steps steps;
    const auto along = [&](int plan::Choice::*integer, std::initializer_list<int> lengths) {
      for (const int by : lengths) {
        steps.push_back([=](plan::Choice &choice) { choice.*integer += by; });
        steps.push_back([=](plan::Choice &choice) { choice.*integer -= by; });
      }
    };
    along(&plan::Choice::n_persist, {1, 3});
    along(&plan::Choice::n_buffer, {1, 4});
    along(&plan::Choice::n_checkpoint, {1, 3});
    along(&plan::Choice::n_device_update, {1, 4});
    if (from.n_deferred >= 0 && !space_.terms.accumulates) along(&plan::Choice::n_deferred, {1, 6});
    for (const int slack : {2, 4, 8})
      if (slack != from.slack) steps.push_back([=](plan::Choice &choice) { choice.slack = slack; });
    return steps;
  }

  bool settle(plan::Choice &choice, bool selective) const {
    const int left = chunks_of(choice) - choice.n_persist, blocks = plan::count_blocks(space_.graph());
    choice.n_host = left;
    choice.n_selective = selective ? blocks - choice.n_checkpoint : 0;
    return choice.n_persist >= 0 && choice.n_buffer >= 1 && choice.n_buffer <= left && choice.n_checkpoint >= 0 &&
           choice.n_checkpoint <= blocks && choice.n_device_update >= 0 && choice.n_device_update <= left &&
           choice.n_deferred >= -1 && choice.n_deferred <= left;
  }

  std::vector<GridPoint> fitting() const {
    std::vector<GridPoint> found;
    for (const GridPoint &one : laid_)
      if (fits(one.out.bytes, space_.terms.capacity)) found.push_back(one);
    std::ranges::sort(found, {}, [](const GridPoint &one) { return one.out.seconds; });
    return found;
  }

  const GridPoint *find(const plan::Choice &choice) const {
    const auto found =
        std::ranges::find_if(laid_, [&](const GridPoint &one) { return plan::same_integers(one.choice, choice); });
    return found == laid_.end() ? nullptr : &*found;
  }

  void lay_out(const std::vector<plan::Choice> &choices) {
    std::vector<plan::Choice> fresh;
    for (const plan::Choice &choice : choices)
      if (find(choice) == nullptr) fresh.push_back(choice);
    const std::vector<GridPoint> more = space_.lay_out(fresh, threads_);
    laid_.insert(laid_.end(), more.begin(), more.end());
  }

  const Space &space_;
  const unsigned threads_;
  std::vector<GridPoint> laid_;
};

}  // namespace protrain::bench
