// Declarations: the claims of lists, training_info, exporters and names about initializers, in this order of
// precedence. All of these take precedence over the rules about places (places.h).
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "passes/passes.h"

namespace protrain::passes {

class Declarations {
 public:
  // Reads what the options and the file say about the initializers of `graph`. Throws Code::arg if a list of parameters
  // names none of these initializers.
  Declarations(const graph::Graph &graph, const Choices &choices, const FileFacts &facts);

  enum class Verdict : std::uint8_t { trained, fixed, silent };
  struct Claim {
    Verdict verdict = Verdict::silent;
    Evidence evidence = Evidence::rules;
    std::string reason;
    std::string doubt;  // not empty: why the claim may be wrong, or about another initializer
  };
  Claim about(const std::string &initializer) const;

  // Takes the names in the list of parameters, or the names that the exporter declares if there is no list. Returns
  // those that belong neither to an initializer nor to a value that an initializer was computed from. But an exporter
  // may merge equal tensors into one, which keeps only one of their names. If there is no list, and such merging can
  // explain all missing names, returns no names.
  std::vector<std::string> unmatched() const;

  // True if `holds` is true for the initializer's name in the file, or for the name of a value that it was computed
  // from.
  bool any_name(const std::string &initializer, const std::function<bool(const std::string &)> &holds) const;

  // Returns the declared or listed parameter from which the exporter made `initializer` by only moving elements.
  // Returns "" if there is no such parameter.
  std::string moved_from(const std::string &initializer) const;

  // Returns the initializer's name in the file. A copy that split_merged() made can have another name in the graph.
  const std::string &in_file(const std::string &initializer) const;

 private:
  using Names = std::vector<std::string>;
  const Names &made_from(const std::string &name) const;
  Claim by_list(const std::string &name) const;
  Claim by_training_info(const std::string &name) const;
  Claim by_exporter(const std::string &name) const;
  void doubt_copies(const std::string &initializer, Claim &said) const;
  std::string doubt_of_fold(const std::string &name) const;
  void count_missing(const graph::Graph &graph);
  bool is_declared(const std::string &name, graph::StoredKind kind) const;

  const Choices &choices_;
  const graph::FileDeclarations &declared_;
  const FileFacts &facts_;
  std::set<std::string> list_;
  std::set<std::string> updated_;
  std::set<std::string> present_;  // initializers and the values they were computed from
  Names unmatched_;                // names of the list that are not in present_
  Names undone_;                   // declared parameters that are not in present_: merged with others, or unused
  std::size_t missing_ = 0;  // the size of undone_, less the parameters that matrices with several readers explain
  std::size_t copies_ = 0;   // vectors that split_merged() made, except statistics
};

}  // namespace protrain::passes
