// Where an initializer meets data: the evidence for calling it a parameter.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace protrain::passes {

struct Place {
  graph::NodeId node = graph::NodeId::none;
  std::size_t input = 0;
  graph::ValueId value = graph::ValueId::none;  // what became of the initializer by then
  bool through_gather = false;                  // on the way there rows were picked from it
  bool through_angle = false;                   // on the way there a sine or cosine was taken
  bool single = false;                          // the initializer has one element
};

// Knows for each value whether it depends on the user's inputs, and who reads it.
class Places {
 public:
  explicit Places(const graph::Graph &graph);

  // All places where what is made of `initializer` and constants alone meets anything else.
  std::vector<Place> of(graph::ValueId initializer) const;
  // Whether weights stand at the place; `reason` says why or why not.
  bool holds_weights(const Place &place, std::string &reason) const;
  bool is_sum(const Place &place) const { return graph_.node(place.node).op == "Add"; }
  bool is_table(const Place &place) const { return graph_.node(place.node).op == "Gather"; }
  const std::vector<graph::NodeId> &readers(graph::ValueId value) const { return readers_[index(value)]; }

 private:
  enum class Kind : std::uint8_t { constant, stored, data };
  Kind kind(graph::ValueId id) const { return kinds_[index(id)]; }
  bool meets(const graph::Node &node, std::size_t input) const;
  bool in_product(const graph::Node &node, const Place &place) const;
  bool in_sum(const graph::Node &node, const Place &place, std::string &reason) const;
  bool in_scale(const graph::Node &node, const Place &place, std::string &reason) const;
  bool in_choice(const graph::Node &node, const Place &place) const;
  bool scales_normalized(const graph::Node &node, std::size_t input) const;
  bool feeds_only_softmax(const graph::Node &node) const;
  bool only_weighs_the_loss(const graph::Node &node) const;
  bool gathers_angles(const graph::Node &node) const;
  bool scales_before_bias(const graph::Node &node, const Place &place) const;
  bool scales_channels(const graph::Node &node, const Place &place) const;

  const graph::Graph &graph_;
  std::vector<Kind> kinds_;
  std::vector<std::vector<graph::NodeId>> readers_;
};

}  // namespace protrain::passes
