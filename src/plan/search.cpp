#include "plan/search.h"

#include <algorithm>
#include <limits>

#include "plan/descent.h"
#include "plan/ranking.h"

namespace protrain::plan {

namespace {

// The number of instructions, roughly, to lay out for each pair of ordering and slack. It is doubled if the host may
// run optimizers.
constexpr std::size_t kInstructions = 30'000;
constexpr std::size_t kDescent = 1'000'000;      // about this many more instructions are laid out by descents
constexpr double kFarBehind = 1.25;              // no descent starts from a plan this many times as slow as the best
constexpr std::size_t kFewest = 5, kMost = 200;  // limits of the points laid out for one ordering and slack
constexpr double kNeighbour = 6, kNeighbourHope = 1.3;  // kNeighbourHope replaces kHope within kNeighbour of the best
constexpr int kSiblings = 2;                            // limit of laid-out points that differ in n_buffer alone
// Margins of the closed form's estimates of memory, for use while no trial corrects them. A choice is kept if its
// estimate for each tier is at most the margin times the tier's memory. The search takes the first margin with which a
// choice is kept.
constexpr double kMargins[] = {1, 1.1, 1.5};
constexpr double kHope = 1.05;  // a point that looks slower than the best by more than this factor is not laid out
constexpr double kAny = std::numeric_limits<double>::max();
constexpr int kTries = 3;  // attempts with slack, and as many without, to find a fitting plan for one optimizer place
// Limits for taking the selective form of a resident plan that fits. The step may get longer by at most the share
// kMostGiven, because other processes slow a step down by more than that anyway. The share of device memory that is
// saved must be at least kLeastWorth times the share of time that is lost.
constexpr double kMostGiven = 0.02, kLeastWorth = 4;

// Search runs one search from start to end. The closed form is fast but rough, and a laid-out Program is exact but a
// million times slower. Each round therefore lays out what ranks best and ranks again with the result. The limits are
// numbers of instructions and not seconds, so that the same model and machine always get the same plan.
class Search {
 public:
  Search(const graph::Graph &graph, const Durations &durations, const Terms &terms, const LayOut &lay_out,
         const LookAhead &look_ahead)
      : graph_(graph),
        terms_(terms),
        look_ahead_(look_ahead),
        trials_(graph, lay_out),
        outline_(graph, durations),
        space_(space_of(graph, outline_, durations, terms)),
        ranking_(graph, outline_, space_, durations, terms, trials_),
        base_(with_terms({}, terms)) {}

  // Tries one ordering after another, each with slack and then without, until something fits. Without slack, bytes are
  // reused at once. In barrier order, updates wait for the norm of all gradients. Several ranks may also shard the
  // persistent chunks, and then gather the chunks' weights twice in each step. Each of these three (no slack, barrier
  // order, sharding) saves memory and costs time.
  SearchResult run() {
    if (try_resident()) return found();
    const int usual = base_.slack;
    for (const int n_whole : space_.n_whole)
      for (const Ordering &ordering : space_.orderings)
        for (const int slack : {usual, 0}) {
          if (best()) return found();
          base_.n_whole = n_whole;
          base_.order = ordering.order;
          base_.n_deferred = ordering.n_deferred;
          base_.slack = slack;
          try_points();
        }
    return found();
  }

  SearchResult run_resident() {
    try_resident();
    return found();
  }

 private:
  // Ranks the points, and lays out one point after another, always the one that looks best. If a laid-out point fits
  // and is the fastest so far, ranks its neighbours too. When no further point looks good enough, ranks all points a
  // second time, because the trials have shown by how much the estimates of memory are wrong.
  void try_points() {
    const std::size_t before = trials_.all().size(), instructions = trials_.instructions();
    const auto enough = [&] {
      const std::size_t laid_out = trials_.all().size() - before, most = (space_.host_updates ? 2 : 1) * kInstructions;
      return laid_out >= kMost || (laid_out >= kFewest && trials_.instructions() - instructions >= most);
    };
    for (const double margin : kMargins) {
      margin_ = margin;
      rank();
      if (!ranking_.shortlist().empty()) break;
    }
    if (space_.host_updates) try_each_place();
    std::optional<Choice> around;
    for (bool ranked_again = false; !enough();) {
      if (const std::optional<Point> first = best(); first && !(around && same_integers(*around, first->choice))) {
        around = first->choice;
        ranking_.add_neighbours(*around);
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

  // Takes the resident plan if it fits, although a plan with updates on the host during backward could be a little
  // faster. Takes the selective form of the resident plan instead if is_worth() says so. That form needs less memory,
  // because cheap values are not kept.
  bool try_resident() {
    Choice choice = with_terms({}, terms_);
    choice.chunk_bytes = space_.chunk_bytes.back();
    choice.n_persist = static_cast<int>(ranking_.fewest_chunks());
    choice.n_host = 0;
    resident_ = {choice, trials_.lay_out(choice)};
    if (!fits(resident_.cost.bytes)) return false;
    best_resident_ = resident_;
    choice.n_selective = space_.blocks;
    if (space_.blocks == 0) return true;
    if (const PlanCost selective = trials_.lay_out(choice); is_worth(selective)) best_resident_ = {choice, selective};
    return true;
  }

  bool is_worth(const PlanCost &selective) const {
    const PlanCost &all = resident_.cost;
    const double given = selective.seconds / all.seconds - 1;
    const double saved =
        1 - static_cast<double>(selective.bytes[Tier::device]) / static_cast<double>(all.bytes[Tier::device]);
    return saved > 0 && given <= kMostGiven && saved >= kLeastWorth * given;
  }

  bool fits(const Bytes &bytes) const { return plan::fits(bytes, terms_.capacity); }

  void rank(std::optional<Mix> mix = {}) { ranking_.rank(base_, margin_, mix); }

  // For each place of the optimizer (device, host, or both), finds one plan that fits, because the closed form says too
  // little about how one place compares with another. If a plan turns out too large, its size corrects the estimates of
  // memory for the next try. Each place gets kTries tries with slack and then kTries tries without.
  void try_each_place() {
    const int usual = base_.slack;
    for (const Mix mix : {Mix::both, Mix::host, Mix::device})
      for (const int slack : {usual, 0}) {
        base_.slack = slack;
        for (int tries = 0; tries < kTries && !best(mix); ++tries) {
          rank(mix);
          const Candidate *pick = best_hope({.most_swap = 0, .hope = kAny, .mix = mix});
          if (pick == nullptr) break;
          trials_.add(*pick);
        }
      }
    base_.slack = usual;
    rank();
  }

  // Descends from the best plan of each place of the optimizer, unless that plan is far slower than the best of all. A
  // descent seldom gets from one place to another, because each place has a local minimum of its own. kDescent limits
  // the instructions that all descents together lay out. Each descent may use an equal share of them, and what earlier
  // descents left of their shares. What is left in the end goes to one more descent, from the best plan of all.
  void descend() {
    std::vector<Point> starts;
    for (const Mix mix : {Mix::host, Mix::device, Mix::both})
      if (const std::optional<Point> one = best(mix)) starts.push_back(*one);
    const auto seconds = [](const Point &point) { return point.cost.seconds; };
    std::ranges::sort(starts, {}, seconds);
    std::erase_if(starts, [&](const Point &point) { return seconds(point) > kFarBehind * seconds(starts[0]); });
    const std::size_t begin = trials_.instructions();
    const auto from = [&](const Choice &choice, std::size_t share) {
      Descent(graph_, space_, terms_, trials_, look_ahead_, begin + kDescent * share / starts.size()).from(choice);
    };
    for (std::size_t i = 0; i < starts.size(); ++i) from(starts[i].choice, i + 1);
    if (const std::optional<Point> fastest = best()) from(fastest->choice, starts.size());
  }

  // Returns the next point to lay out; nullptr: no point looks good enough. The closed form is least accurate for
  // swaps. So if the first point swaps, the second point is one that does not, however slow it looks.
  const Candidate *best_hope() const {
    if (trials_.all().size() == 1 && trials_.all()[0].candidate.choice.n_swap > 0)
      if (const Candidate *pick = best_hope({.most_swap = 0, .hope = kAny}); pick != nullptr) return pick;
    return best_hope({.most_swap = space_.most_swap, .hope = kHope});
  }

  struct Wanted {
    int most_swap = 0;
    double hope = 1;         // a point may look this many times as slow as the best
    std::optional<Mix> mix;  // none: any
  };

  // Among the points of the shortlist that `wanted` accepts and that seem to fit, returns the one that looks fastest;
  // nullptr: there is none. The estimate of each point is corrected by the nearest trial.
  const Candidate *best_hope(const Wanted &wanted) const {
    const Candidate *pick = nullptr;
    const std::optional<Point> first = best();
    double least = std::numeric_limits<double>::max();
    for (const Candidate &candidate : ranking_.shortlist()) {
      if (candidate.choice.n_swap > wanted.most_swap) continue;
      if (wanted.mix && mix_of(candidate.choice) != *wanted.mix) continue;
      const Trial *near = trials_.nearest(candidate.choice);
      double seconds = candidate.estimate.seconds;
      if (near != nullptr) {
        if (same_integers(near->candidate.choice, candidate.choice) || !looks_fitting(candidate, *near)) continue;
        seconds *= near->cost.seconds / near->candidate.estimate.seconds;
      }
      if (first) {
        const bool near_best = distance(first->choice, candidate.choice) <= kNeighbour;
        const double hope = near_best ? std::max(kNeighbourHope, wanted.hope) : wanted.hope;
        if (seconds > first->cost.seconds * hope) continue;
      }
      if (seconds >= least || siblings(candidate.choice) >= kSiblings) continue;  // comes last because it is slow
      pick = &candidate;
      least = seconds;
    }
    return pick;
  }

  // Returns the number of laid-out points that differ from `choice` in n_buffer alone.
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

  // Returns the fastest plan that fits, among the choices that `wanted` accepts.
  template <typename Wanted>
  std::optional<Point> best_of(Wanted &&wanted) const {
    std::optional<Point> found;
    for (const Trial &trial : trials_.all())
      if (wanted(trial.candidate.choice) && fits(trial.cost.bytes) &&
          (!found || trial.cost.seconds < found->cost.seconds))
        found = Point{trial.candidate.choice, trial.cost};
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

  SearchResult found() const {
    SearchResult found{.resident = resident_,
                       .all_fits = best_resident_.has_value(),
                       .ranked = ranking_.ranked(),
                       .laid_out = trials_.all().size() + 1 + (best_resident_ && space_.blocks > 0)};
    found.best = best_resident_ ? best_resident_ : best();
    if (!best_resident_ && found.best) found.next = best_but(*found.best);
    return found;
  }

  const graph::Graph &graph_;
  const Terms &terms_;
  const LookAhead &look_ahead_;
  Trials trials_;
  const Outline outline_;
  const Space space_;
  Ranking ranking_;
  Choice base_;  // ordering and slack of all points that are ranked now
  Point resident_;
  std::optional<Point> best_resident_;  // the resident plan if it fits, or its selective form
  double margin_ = 1;                   // the one of kMargins that is used now
};

}  // namespace

SearchResult search(const graph::Graph &graph, const Durations &durations, const Terms &terms, const LayOut &lay_out,
                    const LookAhead &look_ahead) {
  return Search(graph, durations, terms, lay_out, look_ahead).run();
}

SearchResult search_resident(const graph::Graph &graph, const Durations &durations, const Terms &terms,
                             const LayOut &lay_out) {
  return Search(graph, durations, terms, lay_out, {}).run_resident();
}

}  // namespace protrain::plan
