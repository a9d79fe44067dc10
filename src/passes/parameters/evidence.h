// Declarations of parameters, weighed against each other before any rule is asked.
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
  // For the initializers of `graph`. Code::arg if a list names none of them.
  Declarations(const graph::Graph &graph, const Choices &choices, const FileFacts &facts);

  enum class Verdict : std::uint8_t { trained, fixed, silent };
  struct Claim {
    Verdict verdict = Verdict::silent;
    Evidence evidence = Evidence::rules;
    std::string reason;
    std::string doubt;  // not empty: the claim may concern another initializer, or one like it
  };
  Claim about(const std::string &initializer) const;

  // Names from the list or the exporter's parameters that match no initializer and no source of one.
  std::vector<std::string> unmatched() const;

  // True if `holds` is true for the initializer's name in the file, or for the name of a value it was computed from.
  bool any_name(const std::string &initializer, const std::function<bool(const std::string &)> &holds) const;

  // The name in the file. The initializer may be a copy that split_merged made.
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
  Names unmatched_;                // names of the list
  Names undone_;                   // parameters declared by the exporter that are merged into others, folded or unused
  std::size_t missing_ = 0;        // how many of those are not tied to a present one
  std::size_t copies_ = 0;         // of vectors that the exporter merged
};

}  // namespace protrain::passes
