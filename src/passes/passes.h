// From a file's graph to one that trains: fold, find the parameters, clean up, fuse, find the blocks.
// Each pass is Graph -> Graph and leaves a legal, typed graph; prepare() runs them in order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/declared.h"
#include "graph/graph.h"
#include "graph/split.h"
#include "passes/canonical/fold_budget.h"

namespace protrain::passes {

using LoadInitializer = std::function<graph::Array(const std::string &name)>;

// The loss to put behind a graph that has none.
struct Loss {
  enum class Kind : std::uint8_t {
    cross_entropy,  // mean over positions whose label is not -100; classes along the last axis
    mse,            // mean squared difference
    l1,             // mean absolute difference
    bce,            // mean binary cross entropy
  };
  // The numbers that cross_entropy and bce are given.
  enum class From : std::uint8_t {
    found,  // logits, unless a Softmax or a Sigmoid makes the output
    logits,
    probabilities,  // their logarithm is taken, of 1e-7 at least
  };
  Kind kind = Kind::cross_entropy;
  std::string output;  // of the graph; empty: the first of floats that is no single number
  std::string labels;  // the input that holds them: one of the graph, or a new one
  bool shift = false;  // each prediction is for the position after its own
  From from = From::found;
};

// The user's choices beside the graph; patterns are globs over initializer names.
struct Choices {
  std::vector<std::string> trainable = {};  // parameters whatever else says otherwise, and trained
  std::vector<std::string> frozen = {};     // parameters that are not trained, unless `trainable` names them too
  std::vector<std::string> ties = {};  // of each, patterns joined by "|": the parameters it matches are one, the first
  std::optional<Loss> loss = std::nullopt;  // none: the graph has one
  graph::Declared declared = {};            // by the file; its list may be the user's
};

// Facts that the file's own graph shows and the folded graph does not.
struct FileFacts {
  std::vector<graph::Split> splits = {};  // initializers that the file has once and the graph several times
  std::set<std::string> statistics = {};  // initializers that are means and variances of normalizations
};

// The evidence for a verdict on an initializer, the strongest first.
enum class Evidence : std::uint8_t { option, list, training_info, exporter, name, rules };
const char *name_of(Evidence evidence);

// Why an initializer is what it is; for `protrain check`.
struct Finding {
  std::string initializer;
  bool parameter = false;
  bool frozen = false;
  std::string
      reason;  // "operand of MatMul at /h.0/attn/MatMul", "meets data in Mul at /rotary/Mul with shape [1, 8, 64]"
  Evidence evidence = Evidence::rules;
  std::string doubt = "";      // not empty: the verdict may be wrong, and why
  bool is_initializer = true;  // options reach it; else a Constant, which only another export of the file changes
  std::string tied_to = "";    // not empty: no parameter of its own but this one again, written as such on export
  bool turned = false;         // or its transpose
};

struct Prepared {
  graph::Graph graph;
  std::vector<Finding> findings;       // every float initializer, in file order
  std::vector<graph::Split> splits;    // initializers that the file has once and the graph several times
  std::vector<std::string> unmatched;  // names of a list of parameters that no initializer has
  std::string loss_from;               // of an attached loss: what it is computed from; "" where nothing is to say
  int block_count = 0;
};

// One reason why nodes cannot be trained, and all nodes that have it.
struct Problem {
  std::string op;
  std::string reason;              // goes on after the operator: " is unknown"
  std::vector<std::string> nodes;  // by name, else by operator

  std::string text() const;  // "Wavelet is unknown (/w, /v and 3 more)"
};

// Code::unsupported, with all that is wrong: "3 operators cannot be trained: Wavelet is unknown (/w, /v); ...".
struct Untrainable : Error {
  Untrainable(std::vector<Problem> problems_, std::size_t behind_);
  std::vector<Problem> problems;  // causes alone
  std::size_t behind;             // nodes that read, directly or not, what these make: nothing is known of them
};

// Everything below in order. Unknown operators, subgraphs, operators that cannot be made core ones, and operators on
// the way to the loss without gradient are thrown together, as Untrainable.
Prepared prepare(graph::Graph graph, const LoadInitializer &load, const Choices &choices);

// Types every value, absorbs constants into attributes, turns file operators into core ones, evaluates what depends on
// constants alone. What has no core form, or is unknown, stays as it is; what comes after unknown operators stays
// untyped.
void fold(graph::Graph &graph);
// As one of several. Tells why nodes have no core form, by their first output, where a rule says more than that.
std::map<graph::ValueId, std::string> fold(graph::Graph &graph, FoldBudget &budget);
// Decides what each float initializer is; loads those that are constants, for the next fold().
struct Judged {
  std::vector<Finding> findings;
  std::vector<std::string> unmatched;
};
Judged find_parameters(graph::Graph &graph, const LoadInitializer &load, const Choices &choices,
                       const FileFacts &facts = {});
// Drops what does nothing: pairs of Transposes, Reshape chains, x * 1, x + 0, no-op Casts and Slices, equal nodes, dead
// nodes.
void clean_up(graph::Graph &graph);
// Patterns into fused operators; what matches nothing stays as it is. True where anything changed: with constants
// folded and the graph cleaned up, more patterns may show.
bool fuse(graph::Graph &graph);
// Dropout does nothing, and its mask is true everywhere: for evaluation. Adds no value.
void without_randomness(graph::Graph &graph);
// The same model in bfloat16 or float16, of a prepared graph in float32: parameters, and what is computed of them, are
// rounded. Float32 stay: what operators sum up in it (losses, statistics of rows), the loss and the way to it after the
// last product, what is computed of inputs and constants alone up to where it meets the narrow type; there it is cut to
// the largest finite number.
void to_narrow(graph::Graph &graph, graph::ValueId loss, DType narrow);
// Finds the repeated layers: sets Node::block, returns their number.
int find_blocks(graph::Graph &graph);

}  // namespace protrain::passes
