// The places where an initializer meets data: nodes that combine it with values that depend on the model's inputs.
// These places show whether the initializer is a parameter.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "passes/parameters/names.h"

namespace protrain::passes {

struct Place {
  graph::NodeId node = graph::NodeId::none;
  std::size_t input = 0;
  graph::ValueId value = graph::ValueId::none;  // the value that the node reads: computed from the initializer
  graph::ValueId initializer = graph::ValueId::none;
  bool through_gather = false;      // rows were picked on the way
  bool through_angle = false;       // a sine or cosine was taken on the way
  bool through_root = false;        // a square root was taken on the way
  bool beside_root = false;         // it was multiplied by what comes from a square root
  bool single = false;              // the initializer has one element
  bool norm = false;                // the initializer is the scale or shift of a normalization of channels
  Naming naming = Naming::unknown;  // of the initializer
};

// The role of an initializer at a place, and whether weights are expected in this role.
struct Use {
  // `power` is an exponent, and `bound` is a number that data are clipped to.
  enum class Role : std::uint8_t { operand, table, norm, bias, sum, scale, choice, join, scores, power, bound, other };
  bool is_setting() const { return role == Role::power || role == Role::bound; }

  Role role = Role::other;
  bool weights = false;  // weights are expected here
  bool as_kept = false;  // in the layout that frameworks store; an exporter renames such a value only if it computed it
  bool formula = false;  // weights are expected here, but the values follow a formula
  bool recurrent = false;  // of a recurrent layer: an exporter that renamed it only reordered and stacked weights
  bool inert = false;      // only adds a number to the loss, such as a penalty that was computed from parameters
  std::string reason;      // why weights are expected here, or why not
  std::string doubt;       // not empty: why `weights` may be wrong
};

// Follows initializers through the graph to the nodes that combine them with data, which are values that depend on the
// model's inputs. Judges the use of the initializer at each such place. The class Judge combines these uses with the
// other evidence.
class Places {
 public:
  explicit Places(const graph::Graph &graph);

  // Returns the places where a node combines `initializer` with data, or multiplies it by another stored matrix. A
  // value that is computed from `initializer` without data counts as `initializer`.
  std::vector<Place> of(graph::ValueId initializer, Naming naming) const;
  Use use(const Place &place) const;
  const std::vector<graph::NodeId> &readers(graph::ValueId value) const { return readers_[index(value)]; }

 private:
  enum class Kind : std::uint8_t { constant, stored, data };
  Kind kind(graph::ValueId id) const { return kinds_[index(id)]; }
  const graph::Node *maker(graph::ValueId id) const;
  bool meets(const graph::Node &node, std::size_t input) const;

  Use as_operand(const graph::Node &node, const Place &place) const;
  Use as_table(const graph::Node &node, const Place &place) const;
  Use as_sum(const graph::Node &node, const Place &place) const;
  Use as_scale(const graph::Node &node, const Place &place) const;
  Use as_choice(const graph::Node &node, const Place &place) const;
  Use as_recurrent(const graph::Node &node, const Place &place) const;
  Use as_setting(const graph::Node &node, const Place &place) const;

  bool feeds_recurrent(const graph::Node &product) const;
  bool is_bias(const graph::Node &node, const Place &place) const;
  // A reader of a value that is followed: where the search ends, a node to go on after, or anything else.
  enum class Reader : std::uint8_t { end, on_the_way, other };
  bool leads_to_ends(const graph::Node &node,
                     const std::function<Reader(const graph::Node &, graph::ValueId)> &judge) const;
  bool adds_to_scores(const graph::Node &node) const;
  bool feeds_root(const graph::Node &node) const;
  bool is_attention(const graph::Node &softmax) const;
  bool only_weighs_the_loss(const graph::Node &node) const;
  std::string doubt_of_result(const graph::Node &product) const;
  bool is_inert(const Place &place) const;
  bool feeds_sine_and_cosine(const graph::Node &node) const;
  bool gathers_angles(const graph::Node &node) const;
  bool is_inverse_root(const graph::Node &node) const;
  bool scales_normalized(const graph::Node &node, std::size_t input) const;
  bool scales_before_bias(const graph::Node &node, const Place &place) const;
  bool scales_channels(const graph::Node &node, const Place &place) const;
  bool is_input(graph::ValueId id) const;
  bool spreads(const graph::Node &node, const Place &place) const;

  const graph::Graph &graph_;
  std::vector<Kind> kinds_;
  std::vector<bool> rooted_;  // values that come from the square root of several stored numbers
  std::vector<std::vector<graph::NodeId>> readers_;
};

}  // namespace protrain::passes
