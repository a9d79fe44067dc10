// Exponents, and bounds that data are clipped to, are settings of a model or learned.
#include <set>

#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::settings_test {
namespace {

using Names = std::vector<std::string>;
using Values = std::map<std::string, Array>;

struct SearchResult {
  Graph graph;
  std::vector<passes::Finding> findings;
};

SearchResult find(const Graph &graph, const passes::Choices &choices, const Values &values) {
  SearchResult found{graph, {}};
  passes::fold(found.graph);
  const auto load = [&](const std::string &name) {
    const auto at = values.find(name);
    return at != values.end() ? at->second : some_values(found.graph.value(found.graph.find(name)).type, 7);
  };
  found.findings = passes::find_parameters(found.graph, load, choices).findings;
  return found;
}

Array number(double one) { return Array::scalar(DType::f64, one); }

// Generalized mean pooling learns an exponent. Older exporters write it just as they write literals. The only whole
// number that counts as learned is a bound of 1.
TEST(Settings, AreLearnedIfAModuleHasNamedThem) {
  HandBuilt b;
  const ValueId x = b.add("MatMul", {b.input("x", {2, 4}), b.initializer("m.weight", {4, 4})});
  const ValueId root = b.add("Div", {b.number(1), b.initializer("m.root", {1})});
  ValueId y = b.add("Pow", {b.add("Max", {x, b.initializer("m.eps", {})}), b.initializer("m.p", {1})});
  y = b.add("Pow", {b.add("Pow", {y, b.initializer("three", {})}), root});
  y = b.add("Min", {b.initializer("m.bound", {}), b.add("Min", {y, b.initializer("bound", {})})});
  y = b.add("Max", {y, b.initializer("m.vector", {4})});
  y = b.add("Pow", {b.add("Pow", {y, b.initializer("val_3", {})}), b.initializer("m.six", {})});
  y = b.add("Min", {b.add("Max", {y, b.initializer("m.zero", {})}), b.initializer("m.one", {})});
  y = b.add("Pow", {b.add("Max", {y, b.initializer("m.zeros", {4})}), b.initializer("m.unit", {})});
  b.graph.outputs = {b.add("Exp", {y})};
  const SearchResult found = find(b.graph, {},
                                  {{"m.root", Array::filled({DType::f64, {1}}, 2.9)},
                                   {"m.eps", number(1e-6)},
                                   {"m.p", Array::filled({DType::f64, {1}}, 2.8)},
                                   {"three", number(3)},
                                   {"m.bound", number(5.5)},
                                   {"bound", number(0.9)},
                                   {"val_3", number(0.5)},
                                   {"m.six", number(6)},
                                   {"m.zero", number(0)},
                                   {"m.one", number(1)},
                                   {"m.zeros", Array::filled({DType::f64, {4}}, 0)},
                                   {"m.unit", number(1)}});
  Names learned;
  std::set<std::string> doubtful;
  for (const passes::Finding &finding : found.findings) {
    if (finding.parameter) learned.push_back(finding.initializer);
    if (!finding.doubt.empty()) doubtful.insert(finding.initializer);
  }
  EXPECT_EQ(learned, (Names{"m.weight", "m.root", "m.p", "m.bound", "m.vector", "m.one"}));
  EXPECT_EQ(doubtful, (std::set<std::string>{"m.root", "m.eps", "m.p", "m.bound", "bound", "m.vector", "m.six",
                                             "m.zero", "m.one", "m.zeros", "m.unit"}));
}

// A detector's anchors have several axes. What meets data may be one column of them.
TEST(Settings, OfSeveralAxesAreConstants) {
  HandBuilt b;
  const ValueId x = b.add("MatMul", {b.input("x", {2, 4}), b.initializer("m.weight", {4, 4})});
  const ValueId first = b.slice(b.initializer("m.anchors", {5, 4}), 0, 0, 1);
  b.graph.outputs = {b.add("Exp", {b.add("Max", {x, first})})};
  const passes::Finding anchors = find(b.graph, {}, {}).findings.at(1);
  EXPECT_EQ(anchors.initializer, "m.anchors");
  EXPECT_FALSE(anchors.parameter);
}

// A constant can be folded and fused. A frozen parameter cannot.
TEST(Settings, ThatAreNotTrainedAreConstants) {
  HandBuilt b;
  const ValueId x = b.add("MatMul", {b.input("x", {2, 4}), b.initializer("m.weight", {4, 4})});
  b.graph.outputs = {b.add("Exp", {b.add("Pow", {x, b.initializer("m.p", {1})})})};
  const Values values = {{"m.p", Array::filled({DType::f64, {1}}, 2.5)}};
  const auto origin = [&](const passes::Choices &choices) {
    const SearchResult found = find(b.graph, choices, values);
    return found.graph.value(found.graph.find("m.p")).origin;
  };
  EXPECT_EQ(origin({}), Origin::parameter);
  EXPECT_EQ(origin({.frozen = {"m.p"}}), Origin::constant);
  EXPECT_EQ(origin({.adapters = {{.pattern = "m.weight"}}}), Origin::constant);
  EXPECT_EQ(origin({.declared = {.list = {{"m.weight"}}}}), Origin::constant);
  EXPECT_EQ(origin({.frozen = {"m.p"}, .declared = {.list = {{"m.weight"}}}}), Origin::constant);
  EXPECT_EQ(origin({.declared = {.updated = {{"m.weight"}}}}), Origin::constant);
  EXPECT_EQ(origin({.trainable = {"m.p"}, .adapters = {{.pattern = "m.weight"}}}), Origin::parameter);
  EXPECT_EQ(origin({.declared = {.list = {{"m.weight", "m.p"}}}}), Origin::parameter);
}

}  // namespace
}  // namespace protrain::test::settings_test
