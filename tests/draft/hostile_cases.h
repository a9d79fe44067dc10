// Well-formed graphs that are malicious or meaningless, each with its error.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "onnx_import/wire.h"

namespace protrain::test {

using Integers = std::vector<std::int64_t>;

inline std::string integers(const std::string &name, const Integers &values) {
  return tensor(name, kInt64, {static_cast<std::int64_t>(values.size())}, raw_data(raw(values)));
}
inline std::string integer(const std::string &name, std::int64_t value) {
  return tensor(name, kInt64, {}, raw_data(raw(Integers{value})));
}
inline std::string ints(const std::string &name, const Integers &values) {
  std::string packed;
  for (const std::int64_t value : values) packed += varint(static_cast<std::uint64_t>(value));
  return attribute(name, 7, field(8, packed));
}

struct HostileGraph {
  const char *name;
  std::function<void(Wire &)> change;  // changes the model y = x w (float32[2, 4]) into one whose output is z
  Code code;
  const char *subject;
  const char *text;  // part of the message
};

// Adds nodes after y, and the initializers that these nodes read. The last node must output z.
inline std::function<void(Wire &)> after(const Names &nodes, const Names &initializers = {}) {
  return [=](Wire &wire) {
    wire.nodes.insert(wire.nodes.end(), nodes.begin(), nodes.end());
    wire.initializers.insert(wire.initializers.end(), initializers.begin(), initializers.end());
    wire.outputs = {value("z", kFloat, {})};
  };
}

inline std::vector<HostileGraph> shape_cases() {
  const auto reshaped = [](const Integers &shape) {
    return after({node("Reshape", {"y", "s"}, {"z"})}, {integers("s", shape)});
  };
  const auto sliced = [](std::int64_t start, std::int64_t step) {
    return after({node("Slice", {"y", "b", "e", "a", "s"}, {"z"})},
                 {integers("b", {start}), integers("e", {std::numeric_limits<std::int64_t>::max()}), integers("a", {1}),
                  integers("s", {step})});
  };
  const auto one = [](const std::string &op, const Names &attributes) {
    return after({node(op, {"y"}, {"z"}, attributes)});
  };
  return {
      {"ProductOfOtherWidths", after({node("MatMul", {"y", "v"}, {"z"})}, {floats("v", {3, 2}, {1, 2, 3, 4, 5, 6})}),
       Code::shape, "make_z", "[2, 4]"},
      {"ProductOfScalars", after({node("MatMul", {"y", "v"}, {"z"})}, {floats("v", {}, {1})}), Code::shape, "make_z",
       ""},
      {"GemmOfVectors", after({node("Gemm", {"y", "v"}, {"z"})}, {floats("v", {4}, {1, 2, 3, 4})}), Code::shape,
       "make_z", ""},
      {"ReshapeWithTwoUnknown", reshaped({-1, -1}), Code::shape, "make_z", "-1"},
      {"ReshapeToOtherSize", reshaped({3, 3}), Code::shape, "make_z", "[2, 4]"},
      {"ReshapeToNegative", reshaped({-2, 4}), Code::shape, "make_z", "-2"},
      {"ReshapeToOverflow", reshaped({std::int64_t{1} << 62, 4, -1}), Code::shape, "make_z", ""},
      {"ConcatOnNoAxis", after({node("Concat", {"y", "y"}, {"z"}, {int_attribute("axis", 99)})}), Code::shape, "make_z",
       "99"},
      {"TransposeTwiceOneAxis", one("Transpose", {ints("perm", {0, 0})}), Code::shape, "make_z", "perm"},
      {"TransposeTooManyAxes", one("Transpose", {ints("perm", {0, 1, 2})}), Code::shape, "make_z", "perm"},
      {"SliceByNothing", sliced(0, 0), Code::shape, "make_z", "step"},
      {"SliceByTheLeast", sliced(3, std::numeric_limits<std::int64_t>::min()), Code::shape, "make_z", "step"},
      {"SplitOfOtherSum",
       after({node("Split", {"y", "s"}, {"z", "r"}, {int_attribute("axis", 1)})}, {integers("s", {1, 2})}), Code::shape,
       "make_z", ""},
      {"SoftmaxOnNoAxis", one("Softmax", {int_attribute("axis", 7)}), Code::shape, "make_z", "7"},
      {"SumOfShapesThatDoNotFit", after({node("Add", {"y", "v"}, {"z"})}, {floats("v", {3}, {1, 2, 3})}), Code::shape,
       "make_z", "[3]"},
      {"ExpandToThePlanet", after({node("Expand", {"y", "s"}, {"z"})}, {integers("s", {std::int64_t{1} << 60, 1, 1})}),
       Code::shape, "make_z", ""},
      {"TypesThatClash",
       after({node("Add", {"y", "v"}, {"z"})}, {tensor("v", kDouble, {1}, raw_data(std::string(8, 0)))}), Code::type,
       "make_z", "float64"},
      {"ScaleOfOtherWidth", after({node("LayerNormalization", {"y", "v"}, {"z"})}, {floats("v", {3}, {1, 2, 3})}),
       Code::shape, "make_z", ""},
      {"NormalizationOnNoAxis",
       after({node("LayerNormalization", {"y", "v"}, {"z"}, {int_attribute("axis", -9)})},
             {floats("v", {4}, {1, 2, 3, 4})}),
       Code::shape, "make_z", ""},
  };
}

// y is (2, 4): two samples with four channels.
inline std::vector<HostileGraph> channel_cases() {
  const auto all = [](const std::string &op, const std::string &x, const std::string &scale) {
    const Names inputs = op == "BatchNormalization" ? Names{x, scale, "v", "v", "v"} : Names{x, scale, "v"};
    const Names attributes = op == "GroupNormalization" ? Names{int_attribute("num_groups", 2)} : Names{};
    return after({node(op, inputs, {"z"}, attributes)}, {floats("v", {4}, {1, 2, 3, 4}), floats("n", {0}, {}),
                                                         floats("t", {3}, {1, 2, 3}), floats("s", {}, {1})});
  };
  return {
      {"BatchNormalizationOfAVector", all("BatchNormalization", "v", "v"), Code::shape, "make_z", "[4]"},
      {"BatchNormalizationOfANumber", all("BatchNormalization", "s", "v"), Code::shape, "make_z", "[]"},
      {"BatchNormalizationByNothing", all("BatchNormalization", "y", "n"), Code::shape, "make_z", "[0]"},
      {"BatchNormalizationByThree", all("BatchNormalization", "y", "t"), Code::shape, "make_z", "[3]"},
      {"InstanceNormalizationOfAVector", all("InstanceNormalization", "v", "v"), Code::shape, "make_z", "[4]"},
      {"GroupNormalizationByNothing", all("GroupNormalization", "y", "n"), Code::shape, "make_z", "[0]"},
      {"GroupNormalizationOfANumber", all("GroupNormalization", "s", "v"), Code::shape, "make_z", "[]"},
  };
}

// y is (2, 4): scores of two rows for four classes.
inline std::vector<HostileGraph> class_cases() {
  const auto loss = [](const std::string &op, const std::string &scores, const std::string &labels, bool weighted) {
    const Names inputs = weighted ? Names{scores, labels, "v"} : Names{scores, labels};
    return after({node(op, inputs, {"z"})}, {floats("v", {4}, {1, 2, 3, 4}), floats("s", {}, {1}), integer("one", 1),
                                             integers("single", {1}), integers("two", {1, 2})});
  };
  const std::string log = "NegativeLogLikelihoodLoss", soft = "SoftmaxCrossEntropyLoss";
  return {
      {"LikelihoodOfOneLabel", loss(log, "y", "one", false), Code::shape, "make_z", "labels []"},
      {"LikelihoodOfFewerLabels", loss(log, "y", "single", false), Code::shape, "make_z", "labels [1]"},
      {"LikelihoodOfAVector", loss(log, "v", "two", false), Code::shape, "make_z", "[4]"},
      {"LikelihoodOfANumber", loss(log, "s", "one", false), Code::shape, "make_z", "[]"},
      {"CrossEntropyOfAVector", loss(soft, "v", "two", false), Code::shape, "make_z", "[4]"},
      {"WeightedCrossEntropyOfOneLabel", loss(soft, "y", "one", true), Code::shape, "make_z", "labels []"},
      {"CrossEntropyOfProbabilities", loss(soft, "y", "y", false), Code::type, "make_z", "labels of float32"},
      {"WeightedCrossEntropyOfAVector", loss(soft, "v", "two", true), Code::shape, "make_z", ""},
  };
}

// x is one image of 8 x 8 with four channels. w holds weights for windows of 3 x 3.
inline std::vector<HostileGraph> window_cases() {
  const std::int64_t huge = std::int64_t{1} << 62;
  const auto window = [](const std::string &op, const Names &attributes, const Dims &weights = {4, 4, 3, 3}) {
    return [=](Wire &wire) {
      const auto count = static_cast<std::size_t>(weights[0] * weights[1] * weights[2] * weights[3]);
      wire.initializers = {floats("w", weights, std::vector<float>(count, 1))};
      wire.inputs = {value("x", kFloat, {"1", "4", "8", "8"})};
      wire.nodes = {node(op, op == "MaxPool" ? Names{"x"} : Names{"x", "w"}, {"z"}, attributes)};
      wire.outputs = {value("z", kFloat, {})};
    };
  };
  const auto conv = [&](const std::string &name, const Integers &values) {
    return window("Conv", {ints(name, values)});
  };
  const auto back = [&](const std::string &name, const Integers &values) {
    return window("ConvTranspose", {ints(name, values)});
  };
  return {
      {"NoGroups", window("Conv", {int_attribute("group", 0)}), Code::shape, "make_z", "0 groups"},
      {"HugeGroup", window("Conv", {int_attribute("group", huge)}), Code::shape, "make_z", "groups"},
      {"StridesOfNothing", conv("strides", {0, 0}), Code::graph, "make_z", "strides"},
      {"NegativeStrides", conv("strides", {-1, 1}), Code::graph, "make_z", "strides"},
      {"StridesOfOneAxis", conv("strides", {1}), Code::graph, "make_z", "strides"},
      {"HugeStrides", conv("strides", {huge, huge}), Code::graph, "make_z", "strides"},
      {"DilationsOfThreeAxes", conv("dilations", {1, 1, 1}), Code::graph, "make_z", "dilations"},
      {"HugeDilations", conv("dilations", {huge, 1}), Code::graph, "make_z", "dilations"},
      {"HugePads", conv("pads", Integers(4, huge)), Code::graph, "make_z", "pads"},
      {"NegativePads", conv("pads", Integers(4, -4)), Code::graph, "make_z", "pads"},
      {"OtherKernel", conv("kernel_shape", {5, 5}), Code::shape, "make_z", "kernel_shape"},
      {"OtherChannels", window("Conv", {}, {4, 5, 3, 3}), Code::shape, "make_z", "do not fit"},
      {"WiderThanTheImage", window("Conv", {}, {4, 4, 9, 9}), Code::shape, "make_z", "does not fit"},
      {"WindowsOfNothing", window("Conv", {}, {4, 4, 0, 3}), Code::shape, "make_z", "windows"},
      {"UnknownPads", window("Conv", {attribute("auto_pad", 3, field(4, "none"))}), Code::graph, "make_z", "auto_pad"},
      {"PoolWithoutWindows", window("MaxPool", {}), Code::shape, "make_z", "windows"},
      {"PoolOfHugeWindows", window("MaxPool", {ints("kernel_shape", {huge, huge})}), Code::shape, "make_z", "windows"},
      {"BackToHugeStrides", back("strides", {huge / 2, huge / 2}), Code::graph, "make_z", "strides"},
      {"BackToOneAxis", back("output_shape", {9}), Code::graph, "make_z", "output_shape"},
      {"BackToLessThanNothing", back("output_shape", {std::numeric_limits<std::int64_t>::min(), 9}), Code::shape,
       "make_z", "cannot be made"},
  };
}

inline std::vector<HostileGraph> attribute_cases() {
  const auto one = [](const std::string &op, const Names &inputs, const Names &attributes, const Names &more = {}) {
    return after({node(op, inputs, {"z"}, attributes)}, more);
  };
  return {
      {"CastToWhat", one("Cast", {"y"}, {}), Code::type, "make_z", "Cast to"},
      {"ConcatWithoutAxis", one("Concat", {"y", "y"}, {}), Code::graph, "make_z", "axis"},
      {"EinsumWithoutEquation", one("Einsum", {"y", "y"}, {}), Code::graph, "make_z", "equation"},
      {"AxisAsText", one("Softmax", {"y"}, {attribute("axis", 3, field(4, "one"))}), Code::graph, "make_z", "axis"},
      {"AxesAsOne", one("Transpose", {"y"}, {int_attribute("perm", 1)}), Code::graph, "make_z", "perm"},
      {"ManyParts", after({node("Split", {"y"}, {"z", "r"}, {int_attribute("num_outputs", std::int64_t{1} << 62)})}),
       Code::shape, "make_z", "parts"},
      {"ManyAxes",
       one("Unsqueeze", {"y", "a"}, {},
           {integers("a",
                     [] {
                       Integers axes(100);
                       for (std::size_t i = 0; i < 100; ++i) axes[i] = static_cast<std::int64_t>(i);
                       return axes;
                     }())}),
       Code::limit, "make_z", "rank 102"},
      {"DropsAll",
       one("Dropout", {"y", "r", "t"}, {}, {floats("r", {}, {1}), tensor("t", kBool, {}, raw_data(std::string(1, 1)))}),
       Code::arg, "make_z", "ratio"},
      {"DrawsNoSample", one("Multinomial", {"y"}, {int_attribute("sample_size", 0)}), Code::shape, "make_z",
       "at least one sample"},
      {"DrawsNegativeCount",
       after({node("RandomNormal", {}, {"r"}, {ints("shape", {-4})}), node("Add", {"y", "r"}, {"z"})}), Code::shape,
       "make_r", "-4"},
  };
}

inline std::vector<HostileGraph> constant_cases() {
  const std::int64_t huge = std::int64_t{1} << 40;
  const auto from_range = [](const std::string &start, const std::string &limit, const std::string &step) {
    return after({node("Range", {"a", "b", "c"}, {"r"}), node("Cast", {"r"}, {"f"}, {int_attribute("to", kFloat)}),
                  node("ReduceSum", {"f"}, {"s"}, {int_attribute("keepdims", 0)}), node("Mul", {"y", "s"}, {"z"})},
                 {start, limit, step});
  };
  const auto filled = [&](const Integers &shape, const std::string &op) {
    return after({node("ConstantOfShape", {"s"}, {"c"}), node(op, {"c"}, {"r"}), node("Mul", {"y", "r"}, {"z"})},
                 {integers("s", shape)});
  };
  return {
      {"RangeOfNoStep", from_range(integer("a", 0), integer("b", 5), integer("c", 0)), Code::arg, "make_r",
       "steps of 0"},
      {"RangeWithoutEnd",
       from_range(integer("a", 0), integer("b", std::numeric_limits<std::int64_t>::max()), integer("c", 1)),
       Code::limit, "make_r", "too long"},
      {"RangeOfMuch", from_range(integer("a", 0), integer("b", std::int64_t{1} << 31), integer("c", 1)), Code::limit,
       "make_r", "bytes"},
      {"QuotientByZero",
       after({node("Div", {"a", "b"}, {"q"}), node("Cast", {"q"}, {"f"}, {int_attribute("to", kFloat)}),
              node("Mul", {"y", "f"}, {"z"})},
             {integer("a", 1), integer("b", 0)}),
       Code::arg, "make_q", "zero"},
      {"RestByZero",
       after({node("Mod", {"a", "b"}, {"q"}), node("Cast", {"q"}, {"f"}, {int_attribute("to", kFloat)}),
              node("Mul", {"y", "f"}, {"z"})},
             {integer("a", 1), integer("b", 0)}),
       Code::arg, "make_q", "zero"},
      {"SumOfAPlanet", filled({huge}, "ReduceSum"), Code::limit, "make_c", "bytes"},
      {"TransposeOfAPlanet", filled({huge, 2}, "Transpose"), Code::limit, "make_c", "bytes"},
      {"ConstantOfNegativeShape", filled({-5}, "ReduceSum"), Code::shape, "make_c", "negative"},
      {"ConstantOfOverflow", filled({huge, huge}, "ReduceSum"), Code::shape, "make_c", "overflow"},
      {"CountsOfAPlanet",
       after({node("ConstantOfShape", {"s"}, {"c"}), node("NonZero", {"c"}, {"n"}),
              node("Cast", {"n"}, {"f"}, {int_attribute("to", kFloat)}), node("ReduceSum", {"f"}, {"r"}),
              node("Mul", {"y", "r"}, {"z"})},
             {integers("s", {huge})}),
       Code::limit, "make_c", "bytes"},
      {"RowsOutOfTheTable",
       after({node("Gather", {"v", "i"}, {"r"}), node("Mul", {"y", "r"}, {"z"})},
             {floats("v", {4}, {1, 2, 3, 4}), integer("i", 4)}),
       Code::arg, "make_r", "4"},
      {"TileOfAPlanet", after({node("Tile", {"y", "s"}, {"z"})}, {integers("s", {huge, huge})}), Code::shape, "make_z",
       ""},
      {"PadOfAPlanet", after({node("Pad", {"y", "s"}, {"z"})}, {integers("s", {std::int64_t{1} << 62, 0, 0, 0})}),
       Code::shape, "make_z", ""},
  };
}

// A BatchNormalization of y in training mode, and its initializers: scale, bias and those in `more`.
inline std::string normalization(const std::string &mean, const std::string &variance, const Names &outputs = {"z"}) {
  return node("BatchNormalization", {"y", "scale", "bias", mean, variance}, outputs,
              {int_attribute("training_mode", 1)});
}
inline Names statistics(Names more) {
  more.insert(more.end(), {"scale", "bias"});
  for (std::string &name : more) name = floats(name, {4}, {1, 1, 1, 1});
  return more;
}

inline std::vector<HostileGraph> meaning_cases() {
  return {
      {"UnknownOperator", after({node("Wavelet", {"y"}, {"z"})}), Code::unsupported, "make_z", "Wavelet"},
      {"RunningStatisticsThatAreComputed",
       after({node("Neg", {"m"}, {"mean"}), normalization("mean", "v")}, statistics({"m", "v"})), Code::unsupported,
       "make_z", "running statistic mean is computed"},
      {"RunningStatisticsThatAreConstants",
       after({node("ConstantOfShape", {"four"}, {"mean"}), normalization("mean", "v")},
             [] {
               Names made = statistics({"v"});
               made.push_back(integers("four", {4}));
               return made;
             }()),
       Code::unsupported, "make_z", "running statistics are constants"},
      {"LossOfRunningStatistics", after({normalization("m", "v", {"n", "z"})}, statistics({"m", "v"})),
       Code::unsupported, "make_n", "no gradient"},
      {"NoGradientGetsThrough",
       after({node("Round", {"y"}, {"r"}), node("CumSum", {"r", "a"}, {"z"})}, {integer("a", 0)}), Code::graph,
       "loss/ReduceMean", "gradients of all trained parameters are always zero"},
      {"NothingToTrain",
       [](Wire &wire) {
         wire.nodes = {node("Neg", {"x"}, {"y"})};
         wire.initializers.clear();
       },
       Code::graph, "loss/ReduceMean", "no trained parameter"},
      {"TruthsAsOutput", after({node("Greater", {"y", "y"}, {"z"})}), Code::arg, "loss_output", "z bool"},
  };
}

// The two branches of an If, each of which passes on one value from outside.
inline Names branches(const std::string &then_value, const std::string &else_value) {
  return {body_attribute("then_branch", {}, {node("Identity", {then_value}, {"taken"})}, {"taken"}),
          body_attribute("else_branch", {}, {node("Identity", {else_value}, {"other"})}, {"other"})};
}

// A Loop that computes z from y. Its body reads the iteration i, the condition c and the carried v.
inline std::string loop(const std::string &most, const Names &nodes, const Names &outputs = {"c", "u"}) {
  return node("Loop", {most, "", "y"}, {"z"}, {body_attribute("body", {"i", "c", "v"}, nodes, outputs)});
}

// A Loop of a million iterations inside `depth` others.
inline std::string nested_loops(int depth) {
  std::string inner = node("Neg", {"v"}, {"u"});
  for (int i = 0; i < depth; ++i)
    inner = node("Loop", {"million", "", "v"}, {"u"}, {body_attribute("body", {"i", "c", "v"}, {inner}, {"c", "u"})});
  return inner;
}

// Control flow that depends on data, or does not end, or has parts that are missing or do not match.
inline std::vector<HostileGraph> control_cases() {
  const Names numbers = {integer("two", 2), integer("million", 1'000'000),
                         integer("huge", std::numeric_limits<std::int64_t>::max())};
  const auto with = [=](const Names &nodes) { return after(nodes, numbers); };
  const std::string negated = node("Neg", {"v"}, {"u"});
  const auto scanned = [&](const Names &inputs, std::int64_t count, const Names &more = {}) {
    Names attributes = {body_attribute("body", {"s", "v"}, {node("Add", {"s", "v"}, {"u"})}, {"u"}),
                        int_attribute("num_scan_inputs", count)};
    attributes.insert(attributes.end(), more.begin(), more.end());
    return node("Scan", inputs, {"z"}, attributes);
  };
  const std::string computed = node("ReduceSum", {"y"}, {"n"}, {int_attribute("keepdims", 0)});
  return {
      {"BranchesOnData",
       with({computed, node("Cast", {"n"}, {"b"}, {int_attribute("to", 9)}),
             node("If", {"b"}, {"z"}, branches("y", "n"))}),
       Code::unsupported, "make_z", "the condition depends on data"},
      {"IterationsOnData", with({computed, node("Cast", {"n"}, {"m"}, {int_attribute("to", 7)}), loop("m", {negated})}),
       Code::unsupported, "make_z", "the number of iterations depends on data"},
      {"EndOnData",
       with({loop("two",
                  {node("ReduceSum", {"v"}, {"n"}, {int_attribute("keepdims", 0)}),
                   node("Cast", {"n"}, {"b"}, {int_attribute("to", 9)}), negated},
                  {"b", "u"})}),
       Code::unsupported, "make_z", "the condition for a further iteration depends on data"},
      {"EndlessLoop", with({loop("", {negated})}), Code::limit, "make_z", "more than 65536 nodes"},
      {"HugeLoop", with({loop("huge", {negated})}), Code::limit, "make_z", "more than 65536 nodes"},
      {"HugeLoopOfNothing", with({loop("huge", {}, {"c", "v"})}), Code::limit, "make_z", "more than 65536 nodes"},
      {"HugeAttribute",
       [=](Wire &wire) {  // builds it here, because the list of cases is made whenever the program starts
         with({loop("million", {node("Neg", {"v"}, {"u"}, {ints("more", Integers(1 << 18, 0))})})})(wire);
       },
       Code::limit, "make_z", "more than 65536 nodes"},
      {"NestedLoops",
       with({node("Loop", {"million", "", "y"}, {"z"},
                  {body_attribute("body", {"i", "c", "v"}, {nested_loops(3)}, {"c", "u"})})}),
       Code::limit, "make_z/0/make_u/0/make_u/0/make_u", "more than 65536 nodes"},
      {"LoopOfAbsentValues",
       with({node("Loop", {"two"}, {"z"}, {body_attribute("body", {"i", "c", "v"}, {negated}, {"c", "u"})})}),
       Code::graph, "make_z", "input 2 of its body is absent"},
      {"LoopWithoutBody", with({node("Loop", {"two", "", "y"}, {"z"})}), Code::graph, "make_z", "without body"},
      {"BodyOfOtherInputs",
       with({node("Loop", {"two", "", "y"}, {"z"}, {body_attribute("body", {"i", "c"}, {}, {"c"})})}), Code::graph,
       "make_z", "a Loop with 3 inputs, whose body has 2 inputs"},
      {"BodyOfFewOutputs", with({loop("two", {negated}, {"c"})}), Code::graph, "make_z", "1 outputs"},
      {"IfWithoutElse",
       [](Wire &wire) {
         after({node("If", {"c"}, {"z"}, {branches("y", "y")[0]})})(wire);
         wire.initializers.push_back(tensor("c", kBool, {}, raw_data(std::string(1, '\1'))));
       },
       Code::graph, "make_z", "without else_branch"},
      {"ScanOfMoreThanItHas", with({scanned({"y", "y"}, 3)}), Code::graph, "make_z", "of which it scans 3"},
      {"ScanOfNone", with({scanned({"y", "y"}, 0)}), Code::graph, "make_z", "of which it scans 0"},
      {"ScanOfOtherLengths", with({scanned({"y", "w"}, 2)}), Code::shape, "make_z", "different lengths"},
      {"ScanOnNoAxis", with({scanned({"y", "y"}, 2, {ints("scan_input_axes", {0, 9})})}), Code::shape, "make_z", "9"},
      {"ScanOfFewAxes", with({scanned({"y", "y"}, 2, {ints("scan_input_axes", {0})})}), Code::graph, "make_z",
       "scan_input_axes has 1 elements"},
  };
}

inline std::vector<HostileGraph> hostile_graphs() {
  std::vector<HostileGraph> all;
  for (const auto &cases : {shape_cases(), channel_cases(), class_cases(), window_cases(), attribute_cases(),
                            constant_cases(), control_cases(), meaning_cases()})
    all.insert(all.end(), cases.begin(), cases.end());
  return all;
}

}  // namespace protrain::test
