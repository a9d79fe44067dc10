#include "composed/check.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "composed/reference.h"
#include "grad/training.h"
#include "moments.h"
#include "passes/canonical/canonical.h"
#include "passes/passes.h"
#include "program/program.h"
#include "random_plans/draw.h"

namespace protrain::test {

namespace {

using grad::Training;
using graph::Graph;

// The float64 reference also runs with noise: a random relative error of up to kNoise in each computed number. The
// changes in its results show how far rounding may move a result. kNoise is larger than float32's rounding, because
// kernels also round intermediate results, and approximate some functions to a few units in the last place.
constexpr double kNoise = 0x1p-20, kNoiseFactor = 16;
constexpr int kNoisyRuns = 3;
constexpr double kLeastMargin = 1e-4;        // the least distance to a kink, so that float32 stays on the same side
constexpr double kStep = 1e-4;               // the step of finite differences
constexpr std::uint64_t kLoweredOfEach = 4;  // one model in 4 is also lowered to a Program
constexpr double kLargest = 1e5;             // larger numbers are not compared
constexpr double kUndecided = 10;            // a result that noise moves by more than 10 times its size proves nothing

struct Refusal {
  std::string text;
};

void require_core(const Graph &graph) {
  for (const graph::Node &node : graph.nodes())
    if (!passes::is_core(node.op)) throw Refusal{node.op + " has no core form here"};
}

// Replaces each of the file's operators by core operators, without fusing any. The reference computes this graph.
Graph plain(Graph graph) {
  passes::fold(graph);
  require_core(graph);
  graph.drop_dead_nodes();
  graph::verify(graph);
  return graph;
}

// Cleans the graph up, fuses operators and finds blocks, as prepare() does.
Graph fused(Graph graph) {
  constexpr int kMostFusions = 5;
  passes::clean_up(graph);
  for (int round = 0; round < kMostFusions && passes::fuse(graph); ++round) {
    passes::fold(graph);
    passes::clean_up(graph);
  }
  passes::find_blocks(graph);
  graph::verify(graph);
  return graph;
}

double largest(const Array &array) {
  double most = 0;
  for (double value : array.doubles()) most = std::isfinite(value) ? std::max(most, std::fabs(value)) : INFINITY;
  return most;
}

double distance(const std::vector<double> &a, const std::vector<double> &b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (const double apart = std::fabs(a[i] - b[i]); !(apart <= most)) most = std::isnan(apart) ? INFINITY : apart;
  return most;
}

// Lowers the training graph under a random plan, and verifies the Program.
void lower(const Training &training, KernelRun &kernels, std::uint64_t seed) {
  Draw draw(static_cast<std::uint32_t>(seed));
  const plan::Plan plan = draw.plan(training.graph);
  const program::LoweringInput source = {.graph = training.graph,
                                         .loss = training.loss,
                                         .norm = training.norm,
                                         .gradients = training.gradients,
                                         .squared_norms = training.squared_norms};
  const program::StateRequest request = {.optimizer = program::optimizer_arrays(DType::f32, test::moments(2)),
                                         .kept = std::vector<bool>(training.graph.parameters.size(), false)};
  const program::State state = program::lay_out_state({source}, plan, request);
  program::verify(program::lower(source, plan, state, kernels.workspace(training.graph)));
}

// Builds a model twice from one recipe. The float64 model is differentiated and gives the reference results. The
// float32 model goes through all passes and runs on kernels. Both have the same values, so a difference beyond rounding
// is an error of a pass or a kernel.
class Check {
 public:
  Check(const Recipe &recipe, KernelRun &kernels)
      : recipe_(recipe),
        kernels_(kernels),
        wide_(Composer(recipe, DType::f64).compose()),
        narrow_(Composer(recipe, DType::f32).compose()),
        forward_(plain(wide_.graph)),
        training_(build(forward_.graph())),
        backward_(training_.graph) {}

  Verdict run() {
    values_ = backward_.run(wide_.data);
    Training trained;
    try {
      Graph graph = fused(plain(narrow_.graph));
      const ValueId loss = graph.outputs.at(0);
      trained = grad::build(std::move(graph), loss);
    } catch (const Error &error) {
      // If nothing in the result depends on a trained parameter, passes may find that no gradient exists.
      if (error.code == Code::graph && largest_gradient() == 0) throw Refusal{error.text};
      return wrong("trains in float64, but not after all passes in float32: {}: {}", error.subject, error.text);
    }
    try {
      if (recipe_.seed % kLoweredOfEach == 0) lower(trained, kernels_, recipe_.seed);
    } catch (const Error &error) {
      return wrong("cannot be lowered: {}: {}", error.subject, error.text);
    }
    const auto found = kernels_.run(trained.graph, narrow_.data);
    if (!all_finite()) return {Verdict::Kind::unsettled, "numbers that are not finite, or large"};
    if (Verdict verdict = differences(); verdict.kind == Verdict::Kind::wrong) return verdict;
    if (backward_.branches(values_).margin < kLeastMargin)
      return {Verdict::Kind::unsettled, "too near a kink", directions_};
    return compare(trained, found);
  }

 private:
  template <typename... Arguments>
  Verdict wrong(fmt::format_string<Arguments...> text, Arguments &&...arguments) const {
    return {Verdict::Kind::wrong, fmt::format(text, std::forward<Arguments>(arguments)...), directions_};
  }

  static Training build(const Graph &forward) {
    try {
      return grad::build(forward, forward.outputs.at(0));
    } catch (const Error &error) {
      if (error.code != Code::unsupported && error.code != Code::graph) throw;
      throw Refusal{error.text};
    }
  }

  const std::string &name(std::size_t parameter) const {
    return training_.graph.value(training_.graph.parameters[parameter]).name;
  }
  // The gradient of a parameter; zeros if the loss does not depend on it.
  std::vector<double> gradient(std::size_t parameter, const Values &values) const {
    const ValueId id = training_.gradients[parameter];
    if (id != ValueId::none) return values[index(id)].doubles();
    const Shape &shape = training_.graph.value(training_.graph.parameters[parameter]).type.shape;
    return std::vector<double>(static_cast<std::size_t>(element_count(shape)), 0.0);
  }

  double largest_gradient() const {
    double most = 0;
    for (ValueId id : training_.gradients)
      if (id != ValueId::none) most = std::max(most, largest(values_[index(id)]));
    return most;
  }
  // The largest number in backward, including gradients of inner values. Large terms of a gradient may cancel in
  // float64, while in float32 their rounding errors remain. So the allowed error grows with this number.
  double largest_in_backward() const {
    double most = largest_gradient();
    for (const graph::Node &node : training_.graph.nodes())
      for (ValueId out : node.outputs)
        if (out != ValueId::none && node.phase == graph::Phase::backward &&
            is_float(training_.graph.value(out).type.dtype) && training_.graph.value(out).name.starts_with("d/"))
          if (const double size = largest(values_[index(out)]); size < kLargest) most = std::max(most, size);
    return most;
  }

  bool all_finite() const {
    if (!(largest(values_[index(training_.loss)]) < kLargest)) return false;
    for (ValueId id : training_.gradients)
      if (id != ValueId::none && !(largest(values_[index(id)]) < kLargest)) return false;
    return true;
  }

  // Compares float32 with float64. Allows a multiple of the difference that the noise makes in float64.
  Verdict compare(const Training &trained, const std::map<ValueId, Array> &found) const {
    std::vector<Values> noisy;
    for (int i = 0; i < kNoisyRuns; ++i)
      noisy.push_back(backward_.run(wide_.data, kNoise, static_cast<std::uint64_t>(i)));
    const double scale = largest_in_backward();
    const auto judge = [&](const std::string &what, const std::vector<double> &expected, const auto &in_noise,
                           ValueId id, double floor) -> Verdict {
      double allowed = floor;
      for (const Values &values : noisy)
        allowed = std::max(allowed, kNoiseFactor * distance(in_noise(values), expected) + floor);
      const std::vector<double> zeros(expected.size(), 0.0);
      const std::vector<double> got = id == ValueId::none ? zeros : found.at(id).doubles();
      if (got.size() != expected.size()) return wrong("{} has {} elements, not {}", what, got.size(), expected.size());
      // If noise moves a result by many times its size, the result proves nothing. An example is a quotient whose
      // numerator and denominator would be 0 without rounding.
      const double size = distance(expected, zeros);
      const bool undecided = size > 0 && allowed > kUndecided * size;
      for (std::size_t i = 0; i < got.size(); ++i)
        if (!(std::fabs(got[i] - expected[i]) <= allowed))
          return undecided ? Verdict{.kind = Verdict::Kind::unsettled, .text = "rounding decides"}
                           : wrong("{}[{}] is {} by kernels, {} by the reference; {} is allowed", what, i, got[i],
                                   expected[i], allowed);
      return {.directions = directions_};
    };
    const auto loss = [&](const Values &values) { return values[index(training_.loss)].doubles(); };
    Verdict verdict = judge("the loss", loss(values_), loss, trained.loss, 1e-5 * (1 + std::fabs(loss(values_)[0])));
    for (std::size_t p = 0; p < training_.gradients.size() && verdict.kind == Verdict::Kind::right; ++p) {
      const auto of = [&](const Values &values) { return gradient(p, values); };
      verdict = judge("the gradient of " + name(p), of(values_), of, trained.gradients.at(p), 2e-6 * scale + 1e-9);
    }
    return verdict;
  }

  // Compares the reference's gradients with finite differences, along one direction in each trained parameter.
  Verdict differences() {
    const Values here = forward_.run(wide_.data);
    const auto sides = forward_.branches(here).sides;
    Dice dice(17);
    for (std::size_t p = 0; p < training_.gradients.size(); ++p) {
      const ValueId id = training_.graph.parameters[p];
      if (training_.graph.value(id).frozen) continue;
      const Array &at = wide_.data.at(id);
      std::vector<double> direction(static_cast<std::size_t>(element_count(at.shape())));
      for (double &d : direction) d = dice.real(-1, 1);
      const std::vector<double> slopes = gradient(p, values_);
      double expected = 0, size = 0;
      for (std::size_t i = 0; i < slopes.size(); ++i) {
        expected += slopes[i] * direction[i];
        size += std::fabs(slopes[i] * direction[i]);
      }
      bool smooth = true;
      const auto loss_at = [&](double step) {
        Data moved = wide_.data;
        std::vector<double> values = at.doubles();
        for (std::size_t i = 0; i < values.size(); ++i) values[i] += step * direction[i];
        moved[id] = Array::from_doubles(at.type(), values);
        const Values there = forward_.run(moved);
        smooth = smooth && forward_.branches(there).sides == sides;
        return there[index(forward_.graph().outputs[0])].doubles()[0];
      };
      const double coarse = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
      const double fine = (loss_at(kStep / 2) - loss_at(-kStep / 2)) / kStep;
      if (!smooth || !std::isfinite(coarse) || !std::isfinite(fine)) continue;
      ++directions_;
      const double loss = std::fabs(here[index(forward_.graph().outputs[0])].doubles()[0]);
      const double allowed = 4 * std::fabs(coarse - fine) + 1e-6 * size + 1e-8 * (1 + loss);
      if (!(std::fabs(fine - expected) <= allowed))
        return wrong("the slope along {} is {} by differences, {} by its gradient; {} is allowed", name(p), fine,
                     expected, allowed);
    }
    return {.directions = directions_};
  }

  const Recipe recipe_;
  KernelRun &kernels_;
  const Composition wide_, narrow_;
  const Reference forward_;
  const Training training_;
  const Reference backward_;
  Values values_;
  int directions_ = 0;
};

}  // namespace

Verdict check(const Recipe &recipe, KernelRun &kernels) {
  try {
    return Check(recipe, kernels).run();
  } catch (const Refusal &refusal) {
    return {Verdict::Kind::refused, refusal.text};
  } catch (const Error &error) {
    const bool refuses = error.code == Code::unsupported || error.code == Code::shape || error.code == Code::limit;
    return {refuses ? Verdict::Kind::refused : Verdict::Kind::wrong, error.subject + ": " + error.text};
  } catch (const std::exception &error) {
    return {Verdict::Kind::wrong, error.what()};
  }
}

Recipe shrunk(Recipe recipe, KernelRun &kernels) {
  const int steps = Composer(recipe, DType::f32).compose().steps;
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (int step = 0; step < steps; ++step) {
      Recipe less = recipe;
      if (!less.skipped.insert(step).second || check(less, kernels).kind != Verdict::Kind::wrong) continue;
      recipe = less;
      smaller = true;
    }
  }
  return recipe;
}

std::string print(const Recipe &recipe) {
  Graph graph = Composer(recipe, DType::f32).compose().graph;
  graph.drop_dead_nodes();
  return graph.print();
}

}  // namespace protrain::test
