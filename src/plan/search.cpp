#include "plan/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "plan/descent.h"

namespace protrain::plan {

namespace {

constexpr std::size_t kInstructions = 30'000;    // laid out in one search, about
constexpr std::size_t kDescent = 1'000'000;      // laid out beyond them where memories are apart, about
constexpr double kFarBehind = 1.25;              // times as slow as the best: no descent begins there
constexpr std::size_t kFewest = 5, kMost = 200;  // points that are laid out
constexpr std::size_t kShortlist = 1500;         // points that are ranked again after each
constexpr int kSteps = 10;                       // values of an integer that are ranked before its neighbours are
constexpr int kShares = 8;                       // parts of the chunks that the device may update, in the same way
constexpr double kNeighbour = 6, kNeighbourHope = 1.3;  // but around the best, where the closed form may miss most
// Stages by which the disk may fall behind; and where memories are apart, copies and the host.
constexpr int kSlackShared = 1, kSlackApart = 4;
constexpr int kSiblings = 2;  // laid out of points that differ in their buffers alone
// The closed form may ask for so many times each memory as long as no trial corrects it. The first margin that leaves
// something to lay out is taken.
constexpr double kMargins[] = {1, 1.1, 1.5};
constexpr double kHope = 1.05;  // a point that looks worse than the best by more than this is not laid out
constexpr double kAny = std::numeric_limits<double>::max();
constexpr int kTries = 3;  // to find a plan that fits for one place of the optimizer
// Where all fits, a share of a step's time that may be given for memory, less than other processes cost it; and how
// many times that share of the memory must come of it.
constexpr double kMostGiven = 0.02, kLeastWorth = 4;

// 0, 1, 2, ... or about kSteps values between, the last always among them.
std::vector<int> spread(int last) {
  const int step = std::max(1, last / kSteps);
  std::vector<int> values;
  for (int value = 0; value < last; value += step) values.push_back(value);
  values.push_back(last);
  return values;
}

class Search {
 public:
  Search(const graph::Graph &graph, const Durations &durations, const Terms &terms, const LayOut &lay_out)
      : graph_(graph),
        terms_(terms),
        lay_out_(lay_out),
        trials_(graph, lay_out),
        outline_(graph, durations),
        space_(space_of(graph, outline_, durations, terms)),
        base_(with_terms({}, terms)) {
    chunkings_.reserve(space_.chunk_bytes.size());
    for (std::uint64_t bytes : space_.chunk_bytes) chunkings_.emplace_back(graph, outline_, durations, terms, bytes);
  }

  // Where nothing fits, bytes are used again at once, and then updates wait for the norm of all gradients: both hold
  // less and take longer.
  Found run() {
    if (try_resident()) return found();
    const int usual = base_.slack;
    for (const Ordering &ordering : space_.orderings)
      for (const int slack : {usual, 0}) {
        if (best()) return found();
        base_.order = ordering.order;
        base_.n_deferred = ordering.n_deferred;
        base_.slack = slack;
        try_points();
      }
    return found();
  }

 private:
  // Ranks, lays out what looks best, and ranks again: with what the first point teaches about memory, and around each
  // new best point.
  void try_points() {
    const std::size_t before = trials_.all().size(), instructions = trials_.instructions();
    const auto enough = [&] {
      const std::size_t laid_out = trials_.all().size() - before, most = (space_.host_updates ? 2 : 1) * kInstructions;
      return laid_out >= kMost || (laid_out >= kFewest && trials_.instructions() - instructions >= most);
    };
    for (const double margin : kMargins) {
      margin_ = margin;
      rank();
      if (!shortlist_.empty()) break;
    }
    if (space_.host_updates) try_each_place();
    std::optional<Choice> around;
    for (bool ranked_again = false; !enough();) {
      if (const std::optional<Point> first = best(); first && !(around && same_integers(*around, first->choice))) {
        around = first->choice;
        rank_neighbours(*around);
      }
      if (const Candidate *pick = best_hope(); pick != nullptr) {
        trials_.add(*pick);
        continue;
      }
      if (ranked_again) break;
      ranked_again = true;
      rank();
    }
    if (space_.host_updates) descend();
  }

  // Nothing moves, nothing is computed again: where that fits it is taken, though an optimizer on the host, beside
  // backward, could save a little more. But what is computed again for next to nothing need not be kept.
  bool try_resident() {
    Choice choice = with_terms({}, terms_);
    choice.chunk_bytes = space_.chunk_bytes.back();
    choice.n_persist = static_cast<int>(chunkings_.back().chunks.size());
    choice.n_host = 0;
    resident_ = {choice, lay_out_(expand(graph_, choice))};
    if (!fits(resident_.laid_out.bytes)) return false;
    best_resident_ = resident_;
    choice.n_selective = space_.blocks;
    if (space_.blocks == 0) return true;
    if (const LaidOut selective = lay_out_(expand(graph_, choice)); is_worth(selective))
      best_resident_ = {choice, selective};
    return true;
  }

  bool is_worth(const LaidOut &selective) const {
    const LaidOut &all = resident_.laid_out;
    const double given = selective.seconds / all.seconds - 1;
    const double saved =
        1 - static_cast<double>(selective.bytes[Tier::device]) / static_cast<double>(all.bytes[Tier::device]);
    return saved > 0 && given <= kMostGiven && saved >= kLeastWorth * given;
  }

  bool fits(const Bytes &bytes) const { return plan::fits(bytes, terms_.capacity); }

  // One plan that fits for each place of the optimizer: the closed form says little of one place beside another. What
  // turns out too large teaches the ranking how much of the memory is left; at last nothing may fall behind.
  void try_each_place() {
    const int usual = base_.slack;
    for (const Mix mix : {Mix::both, Mix::host, Mix::device})
      for (int tries = 0; tries < 2 * kTries && !best(mix); ++tries) {
        base_.slack = tries < kTries ? usual : 0;
        rank();
        if (const Candidate *pick = best_hope({.most_swap = 0, .hope = kAny, .mix = mix}); pick != nullptr)
          trials_.add(*pick);
      }
    base_.slack = usual;
    rank();
  }

  // From the best plan, and from the best of each other place of the optimizer that is not far behind: those are
  // valleys of their own.
  void descend() {
    std::vector<Point> starts;
    for (const Mix mix : {Mix::host, Mix::device, Mix::both})
      if (const std::optional<Point> one = best(mix)) starts.push_back(*one);
    const auto seconds = [](const Point &point) { return point.laid_out.seconds; };
    std::ranges::sort(starts, {}, seconds);
    std::erase_if(starts, [&](const Point &point) { return seconds(point) > kFarBehind * seconds(starts[0]); });
    for (const Point &start : starts)
      Descent(graph_, space_, terms_, trials_, trials_.instructions() + kDescent / starts.size()).from(start.choice);
  }

  void rank() {
    shortlist_.clear();
    Choice base = base_;
    for (const Chunking &chunking : chunkings_)
      for (int swaps : spread(space_.most_swap))
        for (int again : spread(space_.blocks - swaps))
          for (int selective : selections(swaps + again)) {
            base.chunk_bytes = space_.chunk_bytes[static_cast<std::size_t>(&chunking - chunkings_.data())];
            base.n_swap = swaps;
            base.n_checkpoint = again;
            base.n_selective = selective;
            for (int share = space_.host_updates ? 0 : kShares; share <= kShares; ++share)
              rank_chunks(chunking, base, static_cast<double>(share) / kShares);
          }
    keep_best();
  }

  // Of the blocks beyond those that let go of everything: all keep all, or all keep selectively.
  std::vector<int> selections(int leaving) const {
    if (leaving == space_.blocks) return {0};
    return {0, space_.blocks - leaving};
  }

  void rank_neighbours(const Choice &around) {
    const auto at = std::ranges::find(space_.chunk_bytes, around.chunk_bytes) - space_.chunk_bytes.begin();
    const Chunking &chunking = chunkings_[static_cast<std::size_t>(at)];
    const std::vector<double> shares = shares_near(around, chunking.chunks.size());
    Choice base = around;
    for (int swaps = around.n_swap - 1; swaps <= around.n_swap + 1; ++swaps)
      for (int again = around.n_checkpoint - 2; again <= around.n_checkpoint + 2; ++again) {
        if (swaps < 0 || swaps > space_.most_swap || again < 0 || swaps + again > space_.blocks) continue;
        base.n_swap = swaps;
        base.n_checkpoint = again;
        for (int selective : selections(swaps + again)) {
          base.n_selective = selective;
          for (double share : shares) rank_chunks(chunking, base, share, &around.n_persist);
        }
      }
  }

  // The choice's own share of updates on the device, and those of one chunk fewer and one more.
  std::vector<double> shares_near(const Choice &around, std::size_t chunks) const {
    const int left = static_cast<int>(chunks) - around.n_persist;
    if (!space_.host_updates || left == 0) return {1};
    const int own = around.n_device_update < 0 ? left : around.n_device_update;
    std::vector<double> shares;
    for (int count = std::max(own - 1, 0); count <= std::min(own + 1, left); ++count)
      shares.push_back(static_cast<double>(count) / left);
    return shares;
  }

  // All that n_persist, n_host and n_buffer can be. n_host is the most that fits: the host is never slower than the
  // disk. Of n_buffer the largest that fit, and the fewest.
  // `share`: of the updates of chunks that do not persist, on the device. `around`: near this n_persist alone.
  void rank_chunks(const Chunking &chunking, Choice choice, double share, const int *around = nullptr) {
    const CostModel model(chunking, choice, share);
    const std::size_t n = model.chunks();
    const int own = share <= 0 ? 0 : share >= 1 ? -1 : 1;  // 1: some
    choice.n_device_update = own;
    const Bytes room = room_near(choice);
    for (std::size_t persist : persists(model, room, around)) {
      if (persist == n && own >= 0) continue;  // nothing is left to update on the host
      if (own > 0) {
        const int left = static_cast<int>(n - persist);
        if (left < 2) continue;  // one chunk has no mean
        choice.n_device_update = std::clamp(static_cast<int>(std::lround(share * left)), 1, left - 1);
      }
      const std::size_t on_host = terms_.shared_memory ? 0 : model.fitting_host(persist, room[Tier::host]);
      const std::size_t most = persist == n ? 0 : model.fitting_buffers(persist, room[Tier::device]);
      choice.n_persist = static_cast<int>(persist);
      choice.n_host = static_cast<int>(on_host);
      for (std::size_t buffers : {most, most - std::min<std::size_t>(most, 1), most - std::min<std::size_t>(most, 2),
                                  std::min<std::size_t>(most, 3), std::min<std::size_t>(most, 1)}) {
        choice.n_buffer = static_cast<int>(buffers);
        const Estimate estimate = model.estimate(persist, on_host, buffers);
        if (choice.order == OptimizerOrder::overlap) choice.n_deferred = estimate.n_deferred;
        ++ranked_;
        if (estimate.bytes[Tier::disk] <= room[Tier::disk] && estimate.bytes[Tier::device] <= room[Tier::device])
          shortlist_.push_back({choice, estimate});
        if (persist == n) break;
      }
    }
  }

  // From the fewest that leave the host no more than it holds to the most that leave room for a buffer; and all.
  std::vector<std::size_t> persists(const CostModel &model, const Bytes &room, const int *around) const {
    const std::size_t n = model.chunks();
    std::vector<std::size_t> found;
    if ((terms_.capacity[Tier::host] > 0 || terms_.capacity[Tier::disk] > 0)) {
      std::size_t first = 0, end = n;
      if (terms_.capacity[Tier::disk] == 0)
        while (first < n && first + model.fitting_host(first, room[Tier::host]) < n) ++first;
      while (end > first && model.fitting_buffers(end - 1, room[Tier::device]) == 0) --end;
      if (end > first)
        for (int more : spread(static_cast<int>(end - first) - 1))
          found.push_back(first + static_cast<std::size_t>(more));
      if (around != nullptr) {
        const auto at = static_cast<std::size_t>(*around);
        found.clear();
        for (std::size_t p = at - std::min<std::size_t>(at, 3); p <= at + 3; ++p)
          if (p >= first && p < end) found.push_back(p);
        // As many as now fit, too: modes that hold less make room for chunks.
        for (std::size_t p = end - std::min<std::size_t>(end, 3); p < end; ++p)
          if (p > at + 3) found.push_back(p);
      }
    }
    if (model.estimate(n, 0, 0).bytes[Tier::device] <= room[Tier::device]) found.push_back(n);
    return found;
  }

  // As many of each n_swap and of each place of the optimizer: the closed form says little of one kind beside another.
  void keep_best() {
    const auto kind = [](const Candidate &candidate) {
      return std::pair(candidate.choice.n_swap, mix_of(candidate.choice));
    };
    const auto better = [&](const Candidate &a, const Candidate &b) {
      return std::pair(kind(a), a.estimate.seconds) < std::pair(kind(b), b.estimate.seconds);
    };
    std::ranges::sort(shortlist_, better);
    std::map<std::pair<int, Mix>, std::size_t> kept;
    for (const Candidate &candidate : shortlist_) kept[kind(candidate)] = 0;
    const std::size_t each = kept.empty() ? 0 : kShortlist / kept.size();
    std::erase_if(shortlist_, [&](const Candidate &candidate) { return ++kept[kind(candidate)] > each; });
  }

  // What the closed form may promise of each tier for a plan like this to fit in truth.
  Bytes room_near(const Choice &choice) const {
    const Trial *near = trials_.nearest(choice, mode_distance);
    Bytes room = terms_.capacity;
    for (const Tier t : kTiers)
      room[t] =
          shifted(room[t], near != nullptr ? -near->memory_error(t) : (margin_ - 1) * static_cast<double>(room[t]));
    return room;
  }

  // What swapping costs is what the closed form knows worst: where the first point swaps, the second does without,
  // whatever is hoped of it.
  const Candidate *best_hope() const {
    if (trials_.all().size() == 1 && trials_.all()[0].candidate.choice.n_swap > 0)
      if (const Candidate *pick = best_hope({.most_swap = 0, .hope = kAny}); pick != nullptr) return pick;
    return best_hope({.most_swap = space_.most_swap, .hope = kHope});
  }

  struct Wanted {
    int most_swap = 0;
    double hope = 1;         // looks at most so many times as slow as the best
    std::optional<Mix> mix;  // none: any
  };

  // The point of the shortlist that looks fastest of those that are wanted and look like fitting, each corrected by its
  // nearest neighbour that was laid out.
  const Candidate *best_hope(const Wanted &wanted) const {
    const Candidate *pick = nullptr;
    const std::optional<Point> first = best();
    double least = std::numeric_limits<double>::max();
    for (const Candidate &candidate : shortlist_) {
      if (candidate.choice.n_swap > wanted.most_swap || siblings(candidate.choice) >= kSiblings) continue;
      if (wanted.mix && mix_of(candidate.choice) != *wanted.mix) continue;
      const Trial *near = trials_.nearest(candidate.choice);
      double seconds = candidate.estimate.seconds;
      if (near != nullptr) {
        if (same_integers(near->candidate.choice, candidate.choice) || !looks_fitting(candidate, *near)) continue;
        seconds *= near->laid_out.seconds / near->candidate.estimate.seconds;
      }
      if (first) {
        const bool near_best = distance(first->choice, candidate.choice) <= kNeighbour;
        const double hope = near_best ? std::max(kNeighbourHope, wanted.hope) : wanted.hope;
        if (seconds > first->laid_out.seconds * hope) continue;
      }
      if (seconds < least) pick = &candidate, least = seconds;
    }
    return pick;
  }

  // Points that were laid out and differ from this one in their buffers alone.
  std::ptrdiff_t siblings(const Choice &choice) const {
    return std::ranges::count_if(trials_.all(), [&](const Trial &trial) {
      Choice same = trial.candidate.choice;
      same.n_buffer = choice.n_buffer;
      return same_integers(same, choice);
    });
  }

  bool looks_fitting(const Candidate &candidate, const Trial &near) const {
    Bytes bytes = candidate.estimate.bytes;
    for (const Tier t : kTiers) bytes[t] = shifted(bytes[t], near.memory_error(t));
    return fits(bytes);
  }

  // The fastest that fits, of the choices that `wanted` takes.
  template <typename Wanted>
  std::optional<Point> best_of(Wanted &&wanted) const {
    std::optional<Point> found;
    for (const Trial &trial : trials_.all())
      if (wanted(trial.candidate.choice) && fits(trial.laid_out.bytes) &&
          (!found || trial.laid_out.seconds < found->laid_out.seconds))
        found = Point{trial.candidate.choice, trial.laid_out};
    return found;
  }
  std::optional<Point> best() const {
    return best_of([](const Choice &) { return true; });
  }
  std::optional<Point> best(Mix mix) const {
    return best_of([&](const Choice &choice) { return mix_of(choice) == mix; });
  }
  std::optional<Point> best_but(const Point &other) const {
    return best_of([&](const Choice &choice) { return !same_integers(other.choice, choice); });
  }

  Found found() const {
    Found found{.resident = resident_,
                .all_fits = best_resident_.has_value(),
                .ranked = ranked_,
                .laid_out = trials_.all().size() + 1 + (best_resident_ && space_.blocks > 0)};
    if ((found.best = best_resident_)) return found;
    found.best = best();
    if (found.best) found.next = best_but(*found.best);
    return found;
  }

  const graph::Graph &graph_;
  const Terms &terms_;
  const LayOut &lay_out_;
  Trials trials_;
  const Outline outline_;
  const Space space_;
  Choice base_;                      // the ordering and the slack of all points that are ranked now
  std::vector<Chunking> chunkings_;  // one for each of the space's chunk_bytes
  std::vector<Candidate> shortlist_;
  Point resident_;
  std::optional<Point> best_resident_;  // where it fits: it, or the one that keeps selectively
  std::size_t ranked_ = 0;
  double margin_ = 1;  // one of kMargins
};

}  // namespace

Choice with_terms(Choice choice, const Terms &terms) {
  choice.shared_memory = terms.shared_memory;
  choice.slack = terms.shared_memory ? kSlackShared : kSlackApart;
  if (terms.barrier_only) choice.order = OptimizerOrder::barrier;
  if (terms.shared_memory) choice.n_device_update = -1;
  return choice;
}

Space space_of(const graph::Graph &graph, const Outline &outline, const Durations &durations, const Terms &terms) {
  Space space{.blocks = static_cast<int>(outline.blocks.size())};
  std::uint64_t all = 0, in_blocks = 0;
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const graph::Type &type = graph.value(graph.parameters[p]).type;
    const std::uint64_t bytes = byte_count(type.dtype, type.shape);
    all += bytes;
    if (outline.block_of_parameter[p] >= 0) in_blocks += bytes;
  }
  const std::uint64_t block = space.blocks > 0 ? in_blocks / outline.blocks.size() : all / 16;
  for (std::uint64_t eighths : {5, 9, 18})
    space.chunk_bytes.push_back(round_up(std::max<std::uint64_t>(block / 8 * eighths, 1), kDiskAlignment));
  space.host_updates = !terms.shared_memory;
  if (!terms.barrier_only) space.orderings.push_back({OptimizerOrder::overlap, 0});
  if (terms.barrier_only && terms.defer()) space.orderings.push_back({OptimizerOrder::barrier, -1});
  space.orderings.push_back({OptimizerOrder::barrier, 0});
  const Tier away = terms.shared_memory ? Tier::disk : Tier::host;
  if (space.blocks == 0 || terms.capacity[away] == 0) return space;
  const Outline::Block &middle = outline.blocks[outline.blocks.size() / 2];
  const double interval = std::ceil(durations.move(Tier::device, away, middle.saved) / middle.forward);
  space.most_swap = space.blocks / std::max(static_cast<int>(std::min(interval, 1e6)), 1);
  return space;
}

Found search(const graph::Graph &graph, const Durations &durations, const Terms &terms, const LayOut &lay_out) {
  return Search(graph, durations, terms, lay_out).run();
}

}  // namespace protrain::plan
