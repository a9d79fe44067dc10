// Decides what each float initializer is: a parameter if weights are expected where it meets data, else a constant.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "ops/op.h"
#include "passes/parameters/evidence.h"
#include "passes/parameters/formula.h"
#include "passes/parameters/load.h"
#include "passes/parameters/mend.h"
#include "passes/parameters/places.h"
#include "passes/passes.h"

namespace protrain::passes {

namespace {

using graph::Graph;
using graph::Node;
using graph::Origin;
using graph::Type;
using graph::Value;
using graph::ValueId;

// The sizes in bytes up to which values are read, for example to test whether their numbers follow a formula.
// kLargestTable is for values that may be tables of positions, because such tables can be large. kLargestMatrix is for
// all others.
constexpr std::uint64_t kLargestTable = std::uint64_t{64} << 20;
constexpr std::uint64_t kLargestMatrix = std::uint64_t{4} << 20;
// If the exporter or a name says that weights are fixed, they become constants up to this many bytes. Larger ones
// become frozen parameters.
constexpr std::uint64_t kLargestFixed = std::uint64_t{1} << 20;
// An exponent or a bound of a smaller magnitude is a setting of the model.
constexpr double kLeastLearned = 1e-3;

constexpr const char *kHalfOfZeros =
    "its half for the states is zeros, as where the layer had one bias (a group with learning_rate_scale=0.5 trains it "
    "like one) or none (freeze it)";

bool matches_any(const std::vector<std::string> &patterns, const std::string &name) {
  return std::ranges::any_of(patterns, [&](const std::string &pattern) { return glob_match(pattern, name); });
}

// Weighs all evidence about an initializer: declarations of the file and the user, the places where it meets
// data, its values and its name. It is the only class that turns evidence into a verdict, so the order of
// precedence is in one place.
class Judge {
 public:
  Judge(const Graph &graph, const LoadInitializer &load, const Choices &choices, const FileFacts &facts)
      : graph_(graph), load_(load), choices_(choices), facts_(facts), places_(graph), declared_(graph, choices, facts) {
    scoped_ = choices.declared.kinds.empty() &&
              std::ranges::any_of(graph.values(), [](const Value &value) { return names_scoped_result(value.name); });
    for (const Value &value : graph.values()) {
      if (value.origin != Origin::initializer) continue;
      named_ = named_ || naming_in_file(value) == Naming::own;
      const auto any = [&](const char *part) {
        return declared_.any_name(value.name, [&](const auto &name) { return name.find(part) != std::string::npos; });
      };
      adapters_ = adapters_ || any(".lora_A.") || any(".lora_B.");
      adapted_ = adapted_ || adapters_ || any(".base_layer.");
    }
  }

  // Returns the verdict that follows from all evidence but the options. overrule() applies the options.
  Finding judge(ValueId id) const;
  std::string doubt_of_constant(ValueId id) const;
  void overrule(Finding &finding) const;
  const std::string &in_file(const std::string &name) const { return declared_.in_file(name); }
  std::string moved_from(const std::string &name) const { return declared_.moved_from(name); }
  bool is_read(ValueId id) const { return !places_.readers(id).empty(); }
  bool matches(const std::vector<std::string> &patterns, const std::string &name) const {
    return matches_any(patterns, name) || matches_any(patterns, declared_.in_file(name));
  }
  std::vector<std::string> unmatched() const { return declared_.unmatched(); }

 private:
  Naming naming_in_file(const Value &value) const;
  Naming naming(const Value &value) const;
  graph::Array values(const Value &value, std::uint64_t limit) const;
  Use look_into(Use use, const Value &value) const;
  Use all_equal(Use use, const Value &value, double x) const;
  Use one_number(Use use, const Value &value, bool written) const;
  Use best_use(ValueId id) const;
  bool may_be_several(const Use &use, ValueId id) const;
  bool stands_beside_statistics(const std::string &name) const;
  void weigh(const Declarations::Claim &said, const Use &use, const Value &value, Finding &finding) const;

  const Graph &graph_;
  const LoadInitializer &load_;
  const Choices &choices_;
  const FileFacts &facts_;
  const Places places_;
  const Declarations declared_;
  bool scoped_ = false;    // PyTorch's older exporter named the values
  bool named_ = false;     // the file has kept names of a framework
  bool adapted_ = false;   // the model has low-rank adapters
  bool adapters_ = false;  // the file has names of low-rank adapters
};

// Returns which kind of name the value has in the file. PyTorch's older exporter marks all names that it makes. So a
// plain name in its files, such as "logit_scale", belongs to a tensor of the outermost module.
Naming Judge::naming_in_file(const Value &value) const {
  const std::string &name = declared_.in_file(value.name);
  const Naming found = naming_of(name);
  return found == Naming::unknown && scoped_ && is_plain(name) ? Naming::own : found;
}

// Returns the kind of the value's name. Returns `unknown` if no initializer has a name of a framework: the initializers
// were renamed then, and their names say nothing.
Naming Judge::naming(const Value &value) const { return named_ ? naming_in_file(value) : Naming::unknown; }

// Returns the numbers of the value. Returns an empty array if they take more than `limit` bytes, or if the file comes
// without weights.
graph::Array Judge::values(const Value &value, std::uint64_t limit) const {
  if (byte_count(value.type.dtype, value.type.shape) > limit) return {};
  if (value.origin == Origin::constant) return value.array.compact();
  const graph::Array array = load_if_there(load_, value.name);
  return array.dtype() == DType::none ? array : array.compact();
}

// True for a bias that is stored as a matrix of one row.
bool is_row(const Use &use, const Value &value) {
  const Shape &shape = value.type.shape;
  const bool added = use.role == Use::Role::sum || use.role == Use::Role::bias;
  return added && shape.size() == 2 && shape[0] == 1 && shape[1] > 1;
}

// True if the second half of each row of a recurrent layer's bias is zeros. The first half is the bias of the inputs,
// and the second half is the bias of the states. Zeros there hint that the layer had only one bias, or none.
bool ends_in_zeros(const graph::Array &bias) {
  if (bias.dtype() == DType::none || bias.shape().size() != 2) return false;
  const std::vector<double> numbers = bias.doubles();
  const auto width = static_cast<std::size_t>(bias.shape()[1]);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (i % width >= width / 2 && numbers[i] != 0) return false;
  return true;
}

// True if numbers that are learned for this use may all be `x`. Learned numbers start as 0 or 1, and training makes
// them fractions. Any other whole number was a literal in the model's source code. So were 0 as a bound, an exponent of
// 1, which changes nothing, and a tiny bound, such as 1e-12, which keeps a divisor from being 0.
bool may_be_learned(const Use &use, double x) {
  if (x == 0) return !use.is_setting();
  if (x == 1) return use.role != Use::Role::power;
  return x != std::floor(x) && !(use.is_setting() && std::abs(x) < kLeastLearned);
}

// Judges a value whose numbers are all `x`.
Use Judge::all_equal(Use use, const Value &value, double x) const {
  using enum Use::Role;
  if (!may_be_learned(use, x)) {
    use.weights = false;
    use.doubt = "learned numbers may start as such";
    use.reason += fmt::format(", all its numbers are {}", x);
    return use;
  }
  const Naming name = naming(value);
  const bool zeros = x == 0 && is_row(use, value);
  // True if the name and the numbers show that the exporter computed the value. The name must be of a kind that
  // exporters make, but not the kind for literals. Numbers that are all one or all zero prove nothing, because an
  // exporter fills these in for a missing scale or bias. But a name of TensorFlow is proof even then, because
  // TensorFlow names a value after the operation that computed it.
  const bool computed = name == Naming::made && !names_literal(value.name) &&
                        ((x != 0 && x != 1) || names_tensorflow(declared_.in_file(value.name)));
  const bool filled = use.role == choice || use.role == join || zeros;
  if (name == Naming::made || zeros || (filled && name != Naming::own)) {
    use.weights = false;
    if (computed)
      use.doubt = "the exporter computed it, maybe from parameters that are all equal";
    else if (name == Naming::made)
      use.doubt.clear();
    else
      use.doubt = zeros ? "a bias that is learned may start as such"
                        : "tokens that are learned start as zeros, and zeros are also filled in";
    use.reason += ", all its numbers are equal";
  } else if (use.weights && use.role == operand && !use.recurrent && name == Naming::unknown && x == 0) {
    use.doubt = "first states of loops are zeros, and learned matrices may start as zeros";
  }
  return use;
}

// Corrects the use of a single number by its value. `written` says that the number's name is that of a literal.
Use Judge::one_number(Use use, const Value &value, bool written) const {
  const graph::Array number = use.weights || use.is_setting() ? values(value, kLargestMatrix) : graph::Array();
  if (number.stored_count() != 1 || number.dtype() == DType::none) {  // not read, or not in the file
    use.weights = use.weights && !written;
    return use;
  }
  const double x = number.stored_double(0);
  const bool learned = may_be_learned(use, x);
  use.weights = use.weights && !written && learned;
  if (use.is_setting() && (!learned || x == 1) && naming(value) != Naming::own) use.doubt.clear();
  return use;
}

// Corrects a use by the value's numbers. Numbers that follow a formula were computed, not learned. The same holds for
// numbers that are all equal, if the exporter named the value.
Use Judge::look_into(Use use, const Value &value) const {
  using enum Use::Role;
  const Naming name = naming(value);
  const bool single = element_count(value.type.shape) == 1;
  if (single && name == Naming::made && names_literal(value.name)) {
    use.doubt.clear();
    use.inert = false;
  }
  // Adds a doubt if a name shows that the exporter computed these weights. A new name shows this for a convolution's
  // kernel, because exporters rename a kernel only if they computed it. A new name does not show this for a transposed
  // matrix, because exporters rename such a matrix even if they only transposed it. A name of arithmetic, such as
  // "mul_3", shows it for weights of any kind.
  const bool kernel = use.role == operand && value.type.shape.size() > 2 && !use.recurrent;
  const bool renamed = use.as_kept || kernel || use.role == sum || use.role == scale || use.role == join;
  if (use.weights && ((name == Naming::made && renamed) || names_arithmetic(declared_.in_file(value.name))))
    use.doubt = "the exporter computed it, as it does when it folds a normalization into what goes before";
  if (use.weights && use.role == bias && use.recurrent && ends_in_zeros(values(value, kLargestMatrix)))
    use.doubt = kHalfOfZeros;
  const bool row = is_row(use, value) && !use.recurrent;
  const bool written = use.role == bias && name == Naming::made && names_literal(value.name);
  if (use.role == other || (use.role == bias && !row && !written)) return use;
  if (use.role == norm && name == Naming::own) return use;
  if (!use.weights && use.doubt.empty()) return use;
  if (single) return one_number(use, value, written);
  const bool table_like = use.role == table || use.role == sum || use.role == scores;
  const graph::Array array = values(value, table_like ? kLargestTable : kLargestMatrix);
  if (array.dtype() == DType::none) return use;  // too large, or the file has no weights
  if (is_uniform(array)) return all_equal(use, value, array.stored_double(0));
  if (use.weights && name != Naming::own && array.stored_count() < element_count(array.shape()))
    use.doubt = "its rows repeat, as where an exporter expanded one parameter: each of them is trained on its own";
  if (use.role == bias || (use.role == operand && is_identity(array))) return use;
  const bool any_order = use.role != operand && use.role != norm;
  std::string formula = formula_of(array, any_order);
  if (formula.empty() && kernel &&
      element_count(array.shape()) > 0) {  // a formula may run through all elements of a window
    const std::int64_t rows = array.shape()[0];
    formula = formula_of(array.reshaped({rows, element_count(array.shape()) / rows}), any_order);
  }
  if (!formula.empty()) {
    use.formula = true;
    use.doubt = name != Naming::made && use.weights ? "learned numbers may start as such" : "";
    use.weights = false;
    use.reason += ", holds " + formula;
  } else if (use.role == scores && name == Naming::made) {
    use.doubt.clear();
  }
  return use;
}

// Returns the use at the first place where weights are expected. If there is no such place, returns the use at the
// first place with a doubt, or else the use at the first of all places. For a running mean or variance, returns a use
// without weights.
Use Judge::best_use(ValueId id) const {
  const Value &value = graph_.value(id);
  Use best{.reason = is_read(id) ? "meets no data" : "is read by nothing", .doubt = ""};
  bool met = false;
  for (const Place &place : places_.of(id, naming(value))) {
    const Use use = look_into(places_.use(place), value);
    if (!met || use.weights || (best.doubt.empty() && !use.doubt.empty())) best = use;
    met = true;
    if (use.weights) break;
  }
  if (best.weights && best.doubt.empty() && may_be_several(best, id))
    best.doubt = "several places read it and all its numbers are equal: the exporter may have made one of several";
  if (!facts_.statistics.contains(value.name)) return best;
  return {.reason = "is a mean or variance that BatchNormalization holds", .doubt = ""};
}

// True if the exporter may have merged several equal initializers into this one, as PyTorch's older exporter does. The
// initializer then has equal numbers only, and several places use it as weights. False for the vectors of layers,
// because split_merged() has split those that were merged. Learned tokens and tables may still be merged, because
// split_merged() leaves them alone: nothing shows whether they were one tensor.
bool Judge::may_be_several(const Use &use, ValueId id) const {
  const Value &value = graph_.value(id);
  const Shape &shape = value.type.shape;
  const bool vector = !shape.empty() && shape.back() == element_count(shape) && use.role != Use::Role::join;
  if (vector || element_count(shape) == 1) return false;
  const std::vector<Place> places = places_.of(id, naming(value));
  if (std::ranges::count_if(places, [&](const Place &place) { return places_.use(place).weights; }) < 2) return false;
  const graph::Array array = values(value, kLargestMatrix);
  return array.dtype() != DType::none && is_uniform(array);
}

// True for names of what PEFT trains: adapters and modules_to_save.
bool is_adapter(const std::string &name) {
  return name.find("lora_") != std::string::npos || name.find("modules_to_save") != std::string::npos;
}

// True if the module of `name` has a running variance that no BatchNormalization reads. Compares names as they are in
// the file, because split_merged() may have made a copy of the variance under another name, and BatchNormalization may
// read this copy.
bool Judge::stands_beside_statistics(const std::string &name) const {
  const std::string statistic = name.substr(0, name.rfind('.') + 1) + "running_var";
  const ValueId found = graph_.find(statistic);
  if (found == ValueId::none || graph_.value(found).origin != Origin::initializer) return false;
  return std::ranges::none_of(facts_.statistics,
                              [&](const auto &read) { return declared_.in_file(read) == statistic; });
}

// Combines the claim and the use into a finding:
// - The claim is silent, or says "trained" with a doubt: the use decides.
// - The claim says "trained": a parameter. It is frozen if the claim comes from the exporter and the numbers follow a
//   formula, because frameworks mostly freeze such tables, and an exporter does not say which parameters are frozen.
// - The claim says "fixed": a frozen parameter if the value is used as weights, else a constant. But if the claim comes
//   from the exporter or the name, weights of at most kLargestFixed bytes become a constant too.
void Judge::weigh(const Declarations::Claim &said, const Use &use, const Value &value, Finding &finding) const {
  using Verdict = Declarations::Verdict;
  finding.reason = use.reason;
  finding.doubt = use.doubt;
  finding.parameter = use.weights;
  finding.setting = use.is_setting();
  if (said.verdict == Verdict::silent) {
    if (!said.doubt.empty() && (use.weights || !use.doubt.empty())) finding.doubt = said.doubt;
    return;
  }
  finding.evidence = said.evidence;
  finding.reason = said.reason + "; " + use.reason;
  finding.doubt = said.doubt.empty() && use.inert ? use.doubt : said.doubt;
  if (said.verdict == Verdict::fixed) {
    const bool few = byte_count(value.type.dtype, value.type.shape) <= kLargestFixed;
    const bool left_out = said.evidence == Evidence::list || said.evidence == Evidence::training_info;
    finding.frozen = finding.parameter = use.weights && (left_out || !few);
  } else if (said.doubt.empty()) {
    finding.parameter = true;
    finding.frozen = use.formula && said.evidence == Evidence::exporter;
    if (finding.frozen)
      finding.doubt = "the exporter does not say whether a parameter is frozen, and such tables mostly are";
  }
}

void Judge::overrule(Finding &finding) const {
  const bool trained = matches(choices_.trainable, finding.initializer);
  const bool frozen = !choices_.adapters.empty() || matches(choices_.frozen, finding.initializer);
  if (!trained && !frozen) return;
  finding.doubt.clear();
  if (trained && (!finding.parameter || finding.frozen)) finding.reason = "named by the option `trainable`";
  if (trained || finding.parameter) finding.evidence = Evidence::option;
  finding.parameter = finding.parameter || trained;
  finding.frozen = finding.parameter && !trained;
}

Finding Judge::judge(ValueId id) const {
  const Value &value = graph_.value(id);
  Finding finding{.initializer = value.name, .reason = ""};
  if (element_count(value.type.shape) == 0) {
    finding.reason = "has no elements";
    return finding;
  }
  const Use use = best_use(id);
  const Declarations::Claim said = declared_.about(value.name);
  if (is_read(id) && !facts_.statistics.contains(value.name))
    weigh(said, use, value, finding);
  else
    finding.reason = use.reason;
  const bool settled = finding.evidence == Evidence::list || finding.evidence == Evidence::training_info;
  if (!settled && finding.evidence == Evidence::rules && finding.parameter && stands_beside_statistics(value.name)) {
    finding.evidence = Evidence::name;
    finding.frozen = true;
    finding.doubt = "it stands beside a mean and variance that no BatchNormalization reads, as in frozen layers";
  }
  if (adapted_ && !settled && finding.parameter && !finding.frozen && !declared_.any_name(value.name, is_adapter)) {
    finding.evidence = Evidence::name;
    finding.frozen = adapters_ || naming(value) != Naming::made;
    finding.doubt = "the model has adapters (lora_A, lora_B), beside which nothing else is trained as a rule";
  }
  return finding;
}

// Returns why a Constant may have been a parameter, or "" if there is no doubt. Frameworks write weights as
// initializers. But onnxsim folds nodes and writes their results as Constants, and these results can be weights.
std::string Judge::doubt_of_constant(ValueId id) const {
  const Value &value = graph_.value(id);
  const bool of_file = value.name.find("/constant") == std::string::npos;  // false for constants of rewritten operators
  if (!of_file || !is_float(value.type.dtype) || element_count(value.type.shape) == 0) return "";
  const Use use = best_use(id);
  if (use.inert) return use.doubt;
  const double first = value.array.stored_double(0);
  const bool filled = is_uniform(value.array) && (first == 0 || first == 1);
  if (filled || !use.weights || element_count(value.type.shape) == 1) return "";
  return "a Constant stands where weights stand, as when an optimizer folded parameters: give the file before that";
}

void require_used(const std::vector<std::string> &patterns, const std::vector<std::string> &eligible,
                  const char *option) {
  for (const std::string &pattern : patterns) {
    const bool used = std::ranges::any_of(eligible, [&](const std::string &name) { return glob_match(pattern, name); });
    if (!used)
      fail(Code::arg, option, "the pattern \"{}\" matches no initializer that can be a parameter{}", printable(pattern),
           about_wider_pattern(pattern, eligible));
  }
}

// Returns the initializers that are state, each with the finding about it.
std::map<ValueId, Finding> states_of(const Graph &graph) {
  std::map<ValueId, Finding> found;
  for (const Node &node : graph.nodes()) {
    const ops::Op *op = ops::find(node.op);
    if (op == nullptr) continue;
    for (const ops::StateInput &state : op->states) {
      const Value &value = graph.value(node.inputs.at(state.input));
      require(value.origin != Origin::node, Code::unsupported, node.name,
              "its running statistic {} is computed, so a step cannot change it; export it as an initializer, or train "
              "with batch_norm=frozen",
              value.name);
      if (value.origin != Origin::initializer) continue;
      found.emplace(node.inputs[state.input],
                    Finding{.initializer = value.name,
                            .parameter = true,
                            .state = true,
                            .reason = "is a running statistic of " + node.subject() + ", which each step changes"});
    }
  }
  return found;
}

// Returns the finding about an initializer of a second graph of the same file. `settled` are the findings about the
// graph that is trained. The parameters of the trained graph are parameters of the second graph too, and so are
// initializers that are tied to one of them. All other initializers are constants.
Finding settled_finding(const std::vector<Finding> &settled, const std::string &name) {
  const auto found = std::ranges::find(settled, name, &Finding::initializer);
  Finding finding = {.initializer = name, .reason = "is no parameter of the graph that is trained"};
  if (found == settled.end() || (!found->parameter && found->tied_to.empty())) return finding;
  finding = *found;
  finding.parameter = true;
  finding.tied_to.clear();  // tie_as_settled() ties it again
  return finding;
}

void make_constant(Graph &graph, ValueId id, const LoadInitializer &load) {
  Value &value = graph.value(id);
  graph::Array array = load(value.name);
  require(array.type() == value.type, Code::internal, value.name, "loaded as {}, but the graph says {}",
          to_text(array.type()), to_text(value.type));
  value.array = array.compact();
  value.origin = Origin::constant;
}

}  // namespace

const char *name_of(Evidence evidence) {
  constexpr const char *kNames[] = {"option", "list", "training_info", "exporter", "name", "rules"};
  return kNames[static_cast<std::size_t>(evidence)];
}

Judgement find_parameters(Graph &graph, const LoadInitializer &load, const Choices &choices, const FileFacts &facts) {
  Judgement judged;
  const Judge judge(graph, load, choices, facts);
  const std::map<ValueId, Finding> states = states_of(graph);
  std::vector<std::string> eligible;  // names that options may match: parameters, and values that may be one
  std::vector<ValueId> constants;
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const auto id = static_cast<ValueId>(i);
    if (graph.value(id).origin == Origin::constant)
      if (std::string doubt = judge.doubt_of_constant(id); !doubt.empty())
        judged.findings.push_back(
            {.initializer = graph.value(id).name, .reason = "is a Constant", .doubt = doubt, .is_initializer = false});
    if (graph.value(id).origin != Origin::initializer) continue;
    if (const auto state = states.find(id); state != states.end()) {
      judged.findings.push_back(state->second);
      continue;
    }
    const bool settled = choices.settled != nullptr;
    Finding finding = settled ? settled_finding(choices.settled->findings, graph.value(id).name) : judge.judge(id);
    const bool doubtful = !finding.doubt.empty();
    const bool empty = element_count(graph.value(id).type.shape) == 0;
    if (!empty && !settled) judge.overrule(finding);
    if (finding.parameter || doubtful)
      eligible.insert(eligible.end(), {finding.initializer, judge.in_file(finding.initializer)});
    if (finding.setting && finding.frozen) finding.parameter = finding.frozen = false;
    if (!finding.parameter && judge.is_read(id)) constants.push_back(id);
    judged.findings.push_back(std::move(finding));
  }
  for (const Finding &finding : judged.findings) {
    Value &value = graph.value(graph.find(finding.initializer));
    if (finding.parameter) value.origin = finding.state ? Origin::state : Origin::parameter;
    value.frozen = finding.frozen;
  }
  for (ValueId id : constants) make_constant(graph, id, load);
  judged.unmatched = judge.unmatched();
  if (choices.settled != nullptr) {
    tie_as_settled(graph, choices.settled->findings, judged.findings);
  } else {
    require_used(choices.trainable, eligible, "trainable");
    require_used(choices.frozen, eligible, "frozen");
    tie(graph, choices.ties, judged.findings);
    // Ties the copies of weights that the exporter wrote several times: transposed copies, moved copies, and copies
    // that nothing reads. Ties none of them if the file describes its training, because that training updates each
    // initializer on its own.
    if (!choices.declared.updated) {
      retie_transposes(graph, load, judged.findings);
      const auto moved_from = [&](const std::string &name) { return judge.moved_from(name); };
      retie_moved(graph, load, moved_from, judged.findings);
      retie_unread(graph, load, moved_from, !choices.adapters.empty(), judged.findings);
    }
  }
  order_parameters(graph);
  return judged;
}

void order_parameters(Graph &graph) {
  graph.parameters.clear();
  std::vector<bool> met(graph.value_count(), false);
  for (const Node &node : graph.nodes())
    for (ValueId in : node.inputs) {
      if (in == ValueId::none || met[index(in)]) continue;
      const Origin origin = graph.value(in).origin;
      if (origin != Origin::parameter && origin != Origin::state) continue;
      met[index(in)] = true;
      graph.parameters.push_back(in);
    }
  std::ranges::stable_partition(graph.parameters, [&](ValueId id) { return graph.value(id).origin != Origin::state; });
}

}  // namespace protrain::passes
