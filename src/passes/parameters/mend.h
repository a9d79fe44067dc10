// Ties weights. An exporter can write one tensor of the framework as several initializers. Tying these initializers
// makes them one parameter again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// Ties parameters by the user's groups. Each entry of `ties` is a group: one or more patterns, joined by "|". All
// parameters that match a group are tied to the first of them, in the order of `findings`. Throws Code::shape if the
// types of two tied parameters are neither equal nor those of a matrix and its transpose. Throws Code::arg if a group
// matches fewer than two parameters.
void tie(graph::Graph &graph, const std::vector<std::string> &ties, std::vector<Finding> &findings);

// Ties each matrix that equals the transpose of an embedding table, bit for bit, to the table. Leaves out matrices that
// are constant along an axis, because two of them may be equal by chance.
void retie_transposes(graph::Graph &graph, const LoadInitializer &load, std::vector<Finding> &findings);

// Ties copies of declared parameters: initializers that an exporter made from a parameter by only moving its elements.
// All copies of a parameter are tied to one original, which is the parameter itself if the graph reads it, else the
// first copy. `moved_from` returns the name of the parameter from which a copy was made, and "" for an initializer that
// is no copy. A copy is tied only if its values show that it equals the original or is the original's transpose. If its
// values show neither, and the original is the parameter itself, the copy's finding gets a doubt, unless the copy is
// frozen or an option names it.
void retie_moved(graph::Graph &graph, const LoadInitializer &load,
                 const std::function<std::string(const std::string &)> &moved_from, std::vector<Finding> &findings);

// Ties unread initializers, which no node of the graph reads, to parameters whose values change: to trained ones, and
// with `adapted` also to frozen ones, because an adapter may change them. Other outputs of the file may read such an
// initializer. So if it holds a parameter's elements, an export must write the changed values into it.
//   Considers an unread initializer if `moved_from` says that it and such a parameter were made from the same declared
// parameter. If the values show that the initializer is a copy or a transpose of the parameter, ties the initializer.
// Otherwise adds a doubt to the initializer's finding. Changes only `findings`.
void retie_unread(const graph::Graph &graph, const LoadInitializer &load,
                  const std::function<std::string(const std::string &)> &moved_from, bool adapted,
                  std::vector<Finding> &findings);

// Ties in a second graph of the same file what is tied in the graph that is trained, and to the same parameters.
// `settled` are the findings about the graph that is trained. So the two graphs have the same parameters, whichever
// copies their nodes read.
void tie_as_settled(graph::Graph &graph, const std::vector<Finding> &settled, std::vector<Finding> &findings);

// Sets graph.parameters: the parameters and states that nodes read, in the order of first use, with all states last.
void order_parameters(graph::Graph &graph);

}  // namespace protrain::passes
