// Ranking: estimates the choices that a search may take by the closed form (cost.h), and keeps those that look fastest.
// Nearby choices that were laid out (trials.h) correct the estimates.
#pragma once

#include <optional>
#include <vector>

#include "plan/cost.h"
#include "plan/outline.h"
#include "plan/space.h"
#include "plan/trials.h"

namespace protrain::plan {

// Ranking keeps a shortlist of the choices that look fastest. The closed form takes a microsecond for a choice, so it
// can rank very many of them. Laying out one choice takes a million times as long. The search lays out the best-ranked
// choices and ranks again. A choice that was laid out shows the closed form's errors in memory and time, and these
// errors correct the estimates of its neighbours.
class Ranking {
 public:
  Ranking(const graph::Graph &graph, const Outline &outline, const Space &space, const Durations &durations,
          const Terms &terms, const Trials &trials);

  // Ranks choices that have the order, the deferred updates, the slack and the n_whole of `base`. If an integer
  // of a choice can have many values, only about ten are tried. Keeps the fastest choices whose estimated memory fits.
  // The estimates are corrected by similar trials. If there is no similar trial, an estimate counts as fitting up to
  // `margin` times the memory of each tier. `mix`: the only place of the optimizer that is ranked; none: all places.
  void rank(const Choice &base, double margin, std::optional<Mix> mix = {});
  // Adds the neighbours of the choice `around` to the shortlist. rank() may have left them out.
  void add_neighbours(const Choice &around);

  // The choices that fit by their estimates. rank() sorts them by n_swap, then by the place of the optimizer, then from
  // fast to slow. It keeps only the fastest choices of each n_swap with each place of the optimizer. add_neighbours()
  // appends further choices.
  const std::vector<Candidate> &shortlist() const { return shortlist_; }
  std::size_t ranked() const { return ranked_; }                                 // choices so far
  std::size_t fewest_chunks() const { return chunkings_.back().chunks.size(); }  // with the largest chunk_bytes

 private:
  std::vector<double> shares_of(std::optional<Mix> mix) const;
  std::vector<int> selections(int leaving) const;
  std::vector<double> shares_near(const Choice &around, std::size_t chunks) const;
  std::vector<Candidate> rank_chunks(const Workload &workload, Choice choice, double share,
                                     const int *around = nullptr);
  std::size_t chunks_on_host(const Footprint &footprint, std::size_t persist, const Bytes &room) const;
  std::vector<std::size_t> persists(const Footprint &footprint, const Bytes &room, const int *around) const;
  Bytes room_near(const Choice &choice) const;

  const Terms &terms_;
  const Space &space_;
  const Trials &trials_;
  std::vector<Chunking> chunkings_;  // one for each of the space's chunk_bytes
  std::vector<Candidate> shortlist_;
  double margin_ = 1;
  std::size_t ranked_ = 0;
};

}  // namespace protrain::plan
