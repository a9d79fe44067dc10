// The passes that turn a file's graph into one that trains: fold, find the parameters, clean up, fuse, find the blocks.
// Each pass is Graph -> Graph and leaves a legal, typed graph. prepare() runs them in order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/bodies.h"
#include "graph/declared.h"
#include "graph/graph.h"
#include "graph/split.h"
#include "passes/adapter.h"
#include "passes/canonical/fold_budget.h"

namespace protrain::passes {

using LoadInitializer = std::function<graph::Array(const std::string &name)>;

// A loss to attach to a graph that has none.
struct Loss {
  enum class Kind : std::uint8_t {
    cross_entropy,  // mean over positions whose label is not -100
    mse,            // mean squared difference
    l1,             // mean absolute difference
    bce,            // mean binary cross entropy
    dpo,            // direct preference optimization: the first half of the samples is preferred to the second
    kl,             // KL divergence from a teacher's class probabilities; the labels are the teacher's logits
    cosine,         // mean of 1 - cosine with the labels
    triplet,        // anchors nearer to positives than to negatives; each of the three is a third of the output
    infonce,        // queries nearer to their own keys than to other keys; each of the two is half of the output
    mean,           // mean of the output's elements, which are losses already
    ctc,            // connectionist temporal classification: the output spells the labels, at times that are not known
  };
  // The form of the predictions that cross_entropy, ctc and bce read.
  enum class From : std::uint8_t {
    automatic,  // logits, unless a Softmax or a Sigmoid makes the output
    logits,
    probabilities,  // clipped to [1e-7, 1 - 1e-7] before the logarithm
  };
  Kind kind = Kind::cross_entropy;
  std::string output;  // an output or inner value; empty: the first float output (a scalar only if the kind is mean)
  std::string labels;  // the input for labels: one of the graph, or a new one
  bool shift = false;  // compare each prediction with the label of the next position
  From from = From::automatic;
  std::string positions = "";    // with `shift`: an input of positions in documents; labels at position 0 are ignored
  std::string weights = "";      // a new input, float32: a factor for each label's loss; empty: all factors are 1
  std::int64_t class_axis = -1;  // the axis of classes in the output, for kinds with classes
  // Options of the kind cross_entropy.
  double label_smoothing = 0;              // the share of each target that is spread over all classes evenly
  double z_loss = 0;                       // adds this factor times the square of log(sum(exp(logits)))
  std::vector<double> class_weights = {};  // a factor of the loss of each label's class; empty: all are 1
  double focal = 0;                        // multiplies a row's loss by (1 - p)^focal; p is the label's probability
  // Options of other kinds. Each line names its kinds.
  std::string reference = "";  // dpo: a new input for the samples' log probabilities under the reference model
  double beta = 0;             // dpo: the factor inside the sigmoid
  bool shows_log_probabilities = false;  // dpo: the samples' log probabilities become the graph's last output
  double temperature = 1;                // kl, infonce
  double margin = 0;                     // triplet
  double factor = 1;                     // all kinds: the factor of this loss in the sum of several losses
  // Options of the kind ctc.
  std::int64_t blank = 0;         // the class that is no label
  std::int64_t label_length = 0;  // labels per sample; 0: as many as the labels' input has; if it is new, one per time
  std::string lengths = "";       // the input for each sample's number of times; empty: all samples have all times
  bool time_first = false;        // true: the output's axes are time, sample, class; false: sample, time, class
};

// The mode in which BatchNormalization trains.
enum class BatchNorm : std::uint8_t {
  as_exported,  // the node's own mode in the file; running variances are biased, as ONNX defines them
  train,        // uses each batch's own statistics, and updates the running ones as PyTorch does
  frozen,       // uses the running statistics, which stay as they are
};

struct PreparedModel;

// The user's choices. The strings of `trainable`, `frozen` and `ties` are patterns: globs over initializer names.
struct Choices {
  std::vector<std::string> trainable = {};  // trained parameters, even if other evidence says otherwise
  std::vector<std::string> frozen = {};     // parameters that are not trained, unless `trainable` names them too
  std::vector<std::string> ties = {};  // each is several patterns joined by "|"; the parameters they match become one
  std::vector<AdapterRequest> adapters = {};  // if there are any, parameters are frozen unless `trainable` names them
  ModuleNames modules = {};                   // the modules that parameters belong to, where the user says so
  std::vector<Loss> losses = {};              // their sum is the loss; empty: the graph has one
  std::string packed = "";                    // the input of positions in packed documents; empty: nothing is packed
  BatchNorm batch_norm = BatchNorm::as_exported;
  graph::FileDeclarations declared = {};  // the file's own declarations; declared.list may come from the user
  const graph::Bodies *bodies = nullptr;  // the bodies of the file's control flow nodes
  // Names of outputs that may be the loss although they have axes: each is one number, whatever the batch is.
  std::set<std::string> numbers = {};
  // The next two members are set only for a second graph of the same file, which also computes outputs beside the loss.
  // `shown` is the number of these outputs, which are the graph's last ones. `settled` is the model that is trained:
  // its parameters are parameters here too, with the same ties and adapters, and all other initializers are constants.
  std::size_t shown = 0;
  const PreparedModel *settled = nullptr;
};

// Facts that the file's own graph shows but the folded graph does not.
struct FileFacts {
  std::vector<graph::Split> splits = {};  // initializers that the file has once and the graph several times
  std::set<std::string> statistics = {};  // initializers that are means and variances of normalizations
};

// The evidence for a verdict on an initializer, strongest first.
enum class Evidence : std::uint8_t { option, list, training_info, exporter, name, rules };
const char *name_of(Evidence evidence);

// The verdict on an initializer and its reason, for `protrain check`.
struct Finding {
  std::string initializer;
  bool parameter = false;
  bool frozen = false;
  bool state = false;  // a parameter that forward changes, neither trained nor frozen
  // For example "operand of MatMul at /h.0/attn/MatMul" or "meets data in Mul at /rotary/Mul with shape [1, 8, 64]".
  std::string reason;
  Evidence evidence = Evidence::rules;
  std::string doubt = "";      // not empty: why the verdict may be wrong
  bool is_initializer = true;  // options can change the verdict; false: a Constant, which only a new export can change
  std::string tied_to = "";    // not empty: the parameter that this one is tied to, whose value is exported for both
  bool transposed = false;     // tied to the transpose of `tied_to`
  // An exponent, or a bound that data are clipped to. It is never frozen: if it is not trained, it is a constant, so
  // that fold() and fuse() know its value.
  bool setting = false;
};

struct PreparedModel {
  graph::Graph graph;
  std::vector<Finding> findings;       // every initializer of floats or quantised weights, and matrices of adapters
  std::vector<graph::Split> splits;    // initializers that the file has once and the graph several times
  std::vector<Adapter> adapters;       // in the order of the parameters that they adapt
  std::vector<std::string> unmatched;  // declared parameters that match no initializer (Declarations::unmatched())
  std::string loss_from;               // what attached losses read, such as "logits"; "" if there is no choice
  int block_count = 0;
  bool had_doubles = false;  // a part of the float32 graph was in float64, and is float32 now
};

// One reason why nodes cannot be trained, and all nodes that have it.
struct Problem {
  std::string op;
  std::string reason;              // follows the operator's name in a message: " is unknown"
  std::vector<std::string> nodes;  // by name, or by operator if unnamed

  std::string text() const;  // "Wavelet is unknown (/w, /v and 3 more)"
};

// An error of Code::unsupported that names everything that is wrong: "3 operators cannot be trained: Wavelet is unknown
// (/w, /v); ...".
struct Untrainable : Error {
  Untrainable(std::vector<Problem> problems_, std::size_t behind_);
  std::vector<Problem> problems;  // causes alone, without the nodes that depend on them
  std::size_t behind;             // number of nodes that depend on these, and so could not be checked
};

// True if a value of this type can be the loss: floats without axes. One element along an axis is not enough, because
// that axis may be the axis of samples, of which there is only one in this batch.
bool may_be_loss(const graph::Type &type);

// Returns the name of the number without axes that takes the place of an output which Choices::numbers names.
inline std::string name_of_number(const std::string &output) { return output + "/number"; }

// Runs fold(), find_parameters(), clean_up(), fuse() and find_blocks(), and attaches the losses that `choices` has.
// Throws one Untrainable that names all unknown operators, subgraphs, operators without a core form, and operators that
// need a gradient rule and have none.
PreparedModel prepare(graph::Graph graph, const LoadInitializer &load, const Choices &choices);

// Types every value, absorbs constants into attributes, turns file operators into core ones, and evaluates what
// depends on constants alone. Nodes that are unknown or have no core form stay as they are, and values behind
// unknown operators stay untyped.
void fold(graph::Graph &graph);
// Does what fold() above does, as one of several calls that share a budget. With `bodies`, also replaces control flow
// nodes by the nodes of their bodies. Returns the texts of the errors that kept nodes from becoming core operators. The
// key is the first output of such a node.
std::map<graph::ValueId, std::string> fold(graph::Graph &graph, FoldBudget &budget,
                                           const graph::Bodies *bodies = nullptr);
// The result of find_parameters(). That pass decides whether each float initializer is a parameter, a state or a
// constant. It loads the constants for the next fold().
struct Judgement {
  std::vector<Finding> findings;
  std::vector<std::string> unmatched;
};
Judgement find_parameters(graph::Graph &graph, const LoadInitializer &load, const Choices &choices,
                          const FileFacts &facts = {});
// Drops nodes that do nothing: pairs of Transposes, chains of Reshapes, x * 1, x + 0, no-op Casts and Slices, equal
// nodes, dead nodes. All nodes must be core operators, so that every value has a type.
void clean_up(graph::Graph &graph);
// Replaces patterns by fused operators. Returns true if anything changed; more patterns may match once constants are
// folded and the graph is cleaned up.
bool fuse(graph::Graph &graph);
// Sets the mode of each BatchNormalization in a file's graph. Returns a copy of the graph's bodies in which the mode is
// set too. With as_exported, only copies the bodies. `bodies` may be nullptr. Throws Code::arg if neither the graph nor
// a body has a BatchNormalization. With `frozen`, throws Code::unsupported if something reads the running statistics
// that a BatchNormalization computes, because a frozen one computes none.
graph::Bodies set_batch_norm(graph::Graph &graph, const graph::Bodies *bodies, BatchNorm batch_norm);
// Returns the most samples for which a node of a prepared graph draws random numbers; 0 if no node draws any.
std::int64_t samples_drawn(const graph::Graph &graph);
// Turns a graph for training into one for evaluation: Dropout is off, its masks are true everywhere, and BatchNorm uses
// the running statistics. Adds no values to the graph.
void for_evaluation(graph::Graph &graph);
// If a folded float32 graph computes some values in float64, makes the graph compute them in float32, and returns true.
bool doubles_to_floats(graph::Graph &graph);
// Turns a prepared float32 graph into bfloat16 or float16. Parameters and values computed from them are rounded. Some
// values stay float32: sums inside operators (losses, statistics of rows), the loss, the values between the last
// product and the loss, running sums, values that become integers (such as places in an image), frozen parameters that
// an operator reads in float32, and values computed from inputs and constants alone. In float16, squares and other
// powers stay float32 too, and so do their sums. If an operator needs a value computed from inputs and constants in the
// narrow type, the value is clipped to the type's finite numbers and rounded.
void to_narrow(graph::Graph &graph, graph::ValueId loss, DType narrow);
// Finds the repeated layers, which are called blocks. Sets Node::block of every node, and returns the number of blocks.
// May move nodes whose results several blocks read, so that they come before all blocks.
int find_blocks(graph::Graph &graph);

}  // namespace protrain::passes
