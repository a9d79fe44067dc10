// Ties weights. An exporter can write one tensor of the framework as several initializers. To tie them makes them one
// parameter again.
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

// Ties copies that the exporter made of a declared parameter by only moving its elements. Ties them to the parameter
// itself if the graph reads it, else to the first copy. `moved_from` returns the parameter's name for a copy, and ""
// for other initializers. Ties a copy only if its values show that it is equal or a transpose. If they show neither and
// the graph also reads the parameter itself, a trained copy gets a doubt, unless an option names it.
void retie_moved(graph::Graph &graph, const LoadInitializer &load,
                 const std::function<std::string(const std::string &)> &moved_from, std::vector<Finding> &findings);

// Ties initializers that no node of the graph reads to a trained parameter, if both have their elements from the same
// declared parameter. Other outputs of the file can read these initializers, so an export must give them the trained
// values too. Changes findings only. Ties an initializer only if its values show that it is a copy or a transpose. If
// they show neither, it gets a doubt.
void retie_unread(const graph::Graph &graph, const LoadInitializer &load,
                  const std::function<std::string(const std::string &)> &moved_from, std::vector<Finding> &findings);

// Sets graph.parameters: the parameters and states that nodes read, in the order of first use, with all states last.
void order_parameters(graph::Graph &graph);

}  // namespace protrain::passes
