#include "plan/search.h"

#include <algorithm>
#include <cmath>

namespace protrain::plan {

namespace {

constexpr std::size_t kInstructions = 40'000;   // laid out in one search, about; a point costs some microseconds each
constexpr std::size_t kFewest = 6, kMost = 48;  // points that are laid out
constexpr std::size_t kShortlist = 4000;        // points that are ranked again after each
constexpr double kHope = 1.02;                  // a point that looks worse than the best by more is not laid out
constexpr double kSlack = 1.1;                  // the closed form may be wrong by this much about memory

struct Candidate {
  Choice choice;
  Estimate estimate;
};

bool same_integers(const Choice &a, const Choice &b) {
  return a.n_persist == b.n_persist && a.n_buffer == b.n_buffer && a.n_swap == b.n_swap &&
         a.n_checkpoint == b.n_checkpoint && a.n_host == b.n_host && a.update == b.update && a.order == b.order &&
         a.chunk_bytes == b.chunk_bytes;
}

// How little two points have in common, in blocks and chunks.
double distance(const Choice &a, const Choice &b) {
  const int blocks = 2 * std::abs(a.n_swap - b.n_swap) + std::abs(a.n_checkpoint - b.n_checkpoint);
  const int chunks = std::abs(a.n_persist - b.n_persist) + std::abs(a.n_host - b.n_host);
  const int kinds = (a.update != b.update) + (a.order != b.order) + (a.chunk_bytes != b.chunk_bytes);
  return blocks + chunks + 0.5 * std::abs(a.n_buffer - b.n_buffer) + 8.0 * kinds;
}

class Search {
 public:
  Search(const graph::Graph &graph, const Clock &clock, const Terms &terms, const LayOut &lay_out)
      : graph_(graph),
        clock_(clock),
        terms_(terms),
        lay_out_(lay_out),
        outline_(graph, clock),
        space_(space_of(graph, outline_, clock, terms)) {}

  Found run() {
    if (try_resident()) return found();
    bool fresh = false;
    while (tried_.size() < limit()) {
      if (shortlist_.empty() || tried_.size() == 2) {
        rank();
        fresh = true;
      }
      const Candidate *pick = best_hope();
      if (pick == nullptr) {
        if (fresh) break;
        shortlist_.clear();
        continue;
      }
      fresh = false;
      lay_out(*pick);
    }
    return found();
  }

 private:
  struct Tried {
    Candidate candidate;
    LaidOut laid_out;
    bool fits = false;
  };

  // Nothing moves, nothing is computed again: no plan is faster.
  bool try_resident() {
    Choice choice = with_terms({}, terms_);
    choice.chunk_bytes = space_.chunk_bytes.back();
    choice.n_persist = static_cast<int>(cut_chunks(graph_, choice.chunk_bytes).size());
    choice.n_host = 0;
    const CostModel model(graph_, outline_, clock_, terms_, choice);
    lay_out({.choice = choice, .estimate = model.estimate(model.chunks(), 0, 0)});
    return tried_.back().fits;
  }

  std::size_t limit() const {
    const std::size_t each = std::max<std::size_t>(tried_.front().laid_out.instructions, 1);
    return std::clamp(kInstructions / each, kFewest, kMost);
  }

  bool fits(const Bytes &bytes) const {
    for (std::size_t t = 0; t < kTierCount; ++t)
      if (bytes[t] > terms_.capacity[t]) return false;
    return true;
  }

  void lay_out(const Candidate &candidate) {
    const LaidOut laid_out = lay_out_(expand(graph_, candidate.choice));
    tried_.push_back({candidate, laid_out, fits(laid_out.bytes)});
  }

  void rank() {
    shortlist_.clear();
    ranked_ = 0;
    Choice base = with_terms({}, terms_);
    for (std::uint64_t chunk_bytes : space_.chunk_bytes)
      for (Tier update : space_.updates)
        for (OptimizerOrder order : space_.orders)
          for (int swaps = 0; swaps <= space_.most_swap; ++swaps)
            for (int again = 0; again + swaps <= space_.blocks; ++again) {
              base.chunk_bytes = chunk_bytes;
              base.update = update;
              base.order = order;
              base.n_swap = swaps;
              base.n_checkpoint = again;
              rank_chunks(base);
            }
    keep_best();
  }

  // All that n_persist, n_host and n_buffer can be. n_host is the most that fits: the host is never slower than the
  // disk.
  void rank_chunks(Choice choice) {
    const CostModel model(graph_, outline_, clock_, terms_, choice);
    const bool elsewhere = terms_.capacity[1] + terms_.capacity[2] > 0;
    const std::size_t n = model.chunks();
    const Bytes room = room_near(choice);
    for (std::size_t persist = elsewhere ? 0 : n; persist <= n; ++persist) {
      const std::size_t on_host = terms_.shared_memory ? 0 : model.fitting_host(persist, room[1]);
      const std::size_t most = persist == n ? 0 : model.fitting_buffers(persist, room[0]);
      if (persist < n && most == 0) break;
      choice.n_persist = static_cast<int>(persist);
      choice.n_host = static_cast<int>(on_host);
      for (std::size_t buffers = most; buffers + 3 > most; --buffers) {
        choice.n_buffer = static_cast<int>(buffers);
        const Estimate estimate = model.estimate(persist, on_host, buffers);
        ++ranked_;
        if (estimate.bytes[2] <= room[2] && estimate.bytes[0] <= room[0]) shortlist_.push_back({choice, estimate});
        if (buffers <= 1) break;
      }
    }
    if (shortlist_.size() > 16 * kShortlist) keep_best();
  }

  void keep_best() {
    const auto faster = [](const Candidate &a, const Candidate &b) { return a.estimate.seconds < b.estimate.seconds; };
    if (shortlist_.size() > kShortlist) {
      std::nth_element(shortlist_.begin(), shortlist_.begin() + kShortlist, shortlist_.end(), faster);
      shortlist_.resize(kShortlist);
    }
  }

  const Tried *nearest(const Choice &choice) const {
    const Tried *found = nullptr;
    double least = 0;
    for (const Tried &tried : tried_) {
      const double away = distance(tried.candidate.choice, choice);
      if (found == nullptr || away < least) found = &tried, least = away;
    }
    return found;
  }

  // What the closed form may promise of each tier for a plan like this to fit in truth.
  Bytes room_near(const Choice &choice) const {
    Bytes room = terms_.capacity;
    Choice at = choice;
    const Tried *near = nullptr;
    double least = 0;
    for (const Tried &tried : tried_) {  // whatever its chunks
      at.n_persist = tried.candidate.choice.n_persist;
      at.n_host = tried.candidate.choice.n_host;
      at.n_buffer = tried.candidate.choice.n_buffer;
      const double away = distance(tried.candidate.choice, at);
      if (near == nullptr || away < least) near = &tried, least = away;
    }
    for (std::size_t t = 0; t < kTierCount; ++t) {
      const auto error = near == nullptr ? 0
                                         : static_cast<double>(near->laid_out.bytes[t]) -
                                               static_cast<double>(near->candidate.estimate.bytes[t]);
      room[t] = static_cast<std::uint64_t>(std::max(0.0, static_cast<double>(room[t]) - error));
    }
    if (near == nullptr) room[0] = static_cast<std::uint64_t>(static_cast<double>(room[0]) * kSlack);
    return room;
  }

  // The point of the shortlist that looks fastest of those that look like fitting, each corrected by its nearest
  // neighbour that was laid out.
  const Candidate *best_hope() const {
    const Candidate *pick = nullptr;
    double least = best() == nullptr ? 1e300 : best()->laid_out.seconds * kHope;
    for (const Candidate &candidate : shortlist_) {
      const Tried *near = nearest(candidate.choice);
      double seconds = candidate.estimate.seconds;
      if (near != nullptr) {
        if (same_integers(near->candidate.choice, candidate.choice)) continue;
        seconds *= near->laid_out.seconds / near->candidate.estimate.seconds;
        if (!looks_fitting(candidate, *near)) continue;
      }
      if (seconds < least) pick = &candidate, least = seconds;
    }
    return pick;
  }

  bool looks_fitting(const Candidate &candidate, const Tried &near) const {
    for (std::size_t t = 0; t < kTierCount; ++t) {
      const double error =
          static_cast<double>(near.laid_out.bytes[t]) - static_cast<double>(near.candidate.estimate.bytes[t]);
      if (static_cast<double>(candidate.estimate.bytes[t]) + error > static_cast<double>(terms_.capacity[t]))
        return false;
    }
    return true;
  }

  const Tried *best() const {
    const Tried *found = nullptr;
    for (const Tried &tried : tried_)
      if (tried.fits && (found == nullptr || tried.laid_out.seconds < found->laid_out.seconds)) found = &tried;
    return found;
  }

  Found found() const {
    Found found{.ranked = ranked_, .laid_out = tried_.size()};
    found.resident = Point{tried_.front().candidate.choice, tried_.front().laid_out};
    const Tried *first = best();
    if (first == nullptr) return found;
    found.best = Point{first->candidate.choice, first->laid_out};
    for (const Tried &tried : tried_)
      if (tried.fits && &tried != first && (!found.next || tried.laid_out.seconds < found.next->laid_out.seconds))
        found.next = Point{tried.candidate.choice, tried.laid_out};
    return found;
  }

  const graph::Graph &graph_;
  const Clock &clock_;
  const Terms &terms_;
  const LayOut &lay_out_;
  const Outline outline_;
  const Space space_;
  std::vector<Candidate> shortlist_;
  std::vector<Tried> tried_;
  std::size_t ranked_ = 0;
};

}  // namespace

Choice with_terms(Choice choice, const Terms &terms) {
  choice.shared_memory = terms.shared_memory;
  if (terms.barrier_only) choice.order = OptimizerOrder::barrier;
  return choice;
}

Space space_of(const graph::Graph &graph, const Outline &outline, const Clock &clock, const Terms &terms) {
  Space space{.blocks = static_cast<int>(outline.blocks.size())};
  std::uint64_t all = 0, in_blocks = 0;
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const graph::Type &type = graph.value(graph.parameters[p]).type;
    const std::uint64_t bytes = byte_count(type.dtype, type.shape);
    all += bytes;
    if (outline.block_of_parameter[p] >= 0) in_blocks += bytes;
  }
  const std::uint64_t block =
      std::max<std::uint64_t>(space.blocks > 0 ? in_blocks / outline.blocks.size() : all / 16, 1);
  for (std::uint64_t bytes : {block / 2 + block / 8, block + block / 8, 2 * block + block / 4})
    space.chunk_bytes.push_back(round_up(bytes, kDiskAlignment));
  space.updates = terms.shared_memory ? std::vector{Tier::device} : std::vector{Tier::host, Tier::device};
  space.orders = {OptimizerOrder::barrier};
  if (!terms.barrier_only) space.orders = {OptimizerOrder::overlap, OptimizerOrder::barrier};
  const Tier away = terms.shared_memory ? Tier::disk : Tier::host;
  if (space.blocks == 0 || terms.capacity[static_cast<std::size_t>(away)] == 0) return space;
  const Outline::Block &middle = outline.blocks[outline.blocks.size() / 2];
  const double out = clock.move(Tier::device, away, middle.saved), interval = std::ceil(out / middle.forward);
  space.most_swap =
      static_cast<int>(std::min(static_cast<double>(space.blocks), space.blocks / std::max(interval, 1.0)));
  return space;
}

Found search(const graph::Graph &graph, const Clock &clock, const Terms &terms, const LayOut &lay_out) {
  return Search(graph, clock, terms, lay_out).run();
}

Smallest smallest(const graph::Graph &graph, const Clock &clock, const Terms &terms, const LayOut &lay_out) {
  const Outline outline(graph, clock);
  const Space space = space_of(graph, outline, clock, terms);
  const bool elsewhere = terms.capacity[1] + terms.capacity[2] > 0;
  std::optional<Smallest> found;
  const auto lacking = [&](const Bytes &bytes) {
    std::uint64_t lack = 0;
    for (std::size_t t = 1; t < kTierCount; ++t) lack += bytes[t] - std::min(bytes[t], terms.capacity[t]);
    return lack;
  };
  // Of those that fit beside the device, or come nearest to it, the one that needs least of the device.
  const auto smaller = [&](const Bytes &a, const Bytes &b) {
    return std::pair(lacking(a), a[0]) < std::pair(lacking(b), b[0]);
  };
  const auto consider = [&](const Choice &choice) {
    const Point point{choice, lay_out(expand(graph, choice))};
    if (!found || smaller(point.laid_out.bytes, found->point.laid_out.bytes)) found = Smallest{point, {}};
  };
  for (std::uint64_t chunk_bytes : space.chunk_bytes)
    for (Tier update : space.updates)
      for (int again : {space.blocks, 0}) {
        Choice choice = with_terms({.n_checkpoint = again, .update = update, .chunk_bytes = chunk_bytes}, terms);
        const CostModel model(graph, outline, clock, terms, choice);
        const std::size_t n = model.chunks();
        if (!elsewhere) choice.n_persist = static_cast<int>(n);
        choice.n_host = terms.shared_memory ? 0 : static_cast<int>(model.fitting_host(0, terms.capacity[1]));
        consider(choice);
        if (terms.shared_memory || terms.capacity[2] > 0 || !elsewhere) continue;
        // What the host does not hold stays on the device; what is in flight there needs some of it too.
        std::size_t persist = 0;
        while (persist < n && persist + model.fitting_host(persist, terms.capacity[1]) < n) ++persist;
        for (std::size_t more = 0; more < 4 && persist + more <= n; ++more) {
          choice.n_persist = static_cast<int>(persist + more);
          choice.n_host = static_cast<int>(n - persist - more);
          consider(choice);
        }
      }
  for (std::size_t t = kTierCount; t-- > 0;)
    if (found->point.laid_out.bytes[t] > terms.capacity[t]) found->lacks = static_cast<Tier>(t);
  return *found;
}

}  // namespace protrain::plan
