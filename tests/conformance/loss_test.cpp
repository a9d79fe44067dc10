// Compares the losses and their gradients with their references. Largest error allowed: 1e-5.
#include "conformance/contest.h"

namespace protrain::test::loss_test {
namespace {

PROTRAIN_FAMILY(CrossEntropyKernel);
PROTRAIN_FAMILY(LinearCrossEntropyKernel);

Attributes form(const std::string &reduction, bool ignore) {
  Attributes attributes{{"reduction", reduction}};
  if (ignore) attributes.set("ignore_index", std::int64_t{-100});
  return attributes;
}

Array labels(std::int64_t rows, std::int64_t classes, bool ignore, DType dtype = DType::i64) {
  std::vector<std::int64_t> values = random_integers({rows}, 5, 0, classes).integers();
  for (std::size_t i = 0; ignore && i < values.size(); i += 3) values[i] = -100;
  return Array::from_integers({dtype, {rows}}, values);
}

TEST_P(CrossEntropyKernel, IsTheReferenceAndSoIsItsGradient) {
  for (const Shape &shape : {Shape{1, 1}, Shape{7, 5}, Shape{33, 1000}, Shape{3, 5003}})
    for (const char *reduction : {"mean", "sum", "none"})
      for (bool ignore : {false, true}) {
        const Array logits = random_floats(shape, 1, -8, 8);
        const Array targets = labels(shape[0], shape[1], ignore, ignore ? DType::i32 : DType::i64);
        const OneNode node{"CrossEntropy", form(reduction, ignore), {logits, targets}, {true, true}};
        expect_reference(node);
        const std::vector<Array> results = reference(node);
        expect_reference(
            {"CrossEntropyGrad", node.attributes, {random_floats(results[0].shape(), 3), logits, targets, results[1]}});
      }
}

// Attributes of five losses: a cross entropy with and without label smoothing, each of them with and without a z-loss,
// and a focal loss.
std::vector<Attributes> mixed_forms(const std::string &reduction) {
  std::vector<Attributes> forms;
  for (const double smoothing : {0.0, 0.3})
    for (const double z_loss : {0.0, 0.02}) {
      forms.push_back(form(reduction, true));
      forms.back().set("label_smoothing", smoothing);
      forms.back().set("z_loss", z_loss);
    }
  forms.push_back(form(reduction, true));
  forms.back().set("focal", 1.5);
  return forms;
}

// Factors of rows; every fourth is 0.
Array weights(std::int64_t rows) {
  std::vector<double> values = random_floats({rows}, 9, 0.25, 2).doubles();
  for (std::size_t i = 1; i < values.size(); i += 4) values[i] = 0;
  return floats({rows}, values);
}

TEST_P(CrossEntropyKernel, SmoothsLabelsWeighsRowsAndKeepsLogitsSmall) {
  for (const Shape &shape : {Shape{7, 5}, Shape{12, 3001}})
    for (const char *reduction : {"mean", "sum", "none"})
      for (const Attributes &attributes : mixed_forms(reduction)) {
        const Array logits = random_floats(shape, 1, -8, 8), targets = labels(shape[0], shape[1], true);
        const OneNode node{"CrossEntropy", attributes, {logits, targets, weights(shape[0])}, {true, true}};
        expect_reference(node);
        const std::vector<Array> results = reference(node);
        const Array dloss = random_floats(results[0].shape(), 3);
        expect_reference({"CrossEntropyGrad", attributes, {dloss, logits, targets, results[1], node.inputs[2]}});
      }
}

// A logit of -inf excludes its class. Here the first 400 logits of each row are -inf.
TEST_P(CrossEntropyKernel, ClassesThatCannotBeCountForNothing) {
  std::vector<double> logits = random_floats({5, 700}, 1, -8, 8).doubles();
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (i % 700 < 400) logits[i] = -HUGE_VAL;
  const Array targets = Array::from_integers({DType::i64, {5}}, {400, 699, 512, 401, 600});
  const OneNode node{"CrossEntropy", form("mean", false), {floats({5, 700}, logits), targets}, {true, true}};
  expect_reference(node);
  const std::vector<Array> results = reference(node);
  expect_reference(
      {"CrossEntropyGrad", node.attributes, {Array::scalar(DType::f32, 1), node.inputs[0], targets, results[1]}});
}

struct Linear {
  std::int64_t rows, depth, classes;
};

OneNode linear(const Linear &s, bool trans_w, const char *reduction, bool ignore, bool bias) {
  Attributes attributes = form(reduction, ignore);
  attributes.set("trans_w", std::int64_t{trans_w});
  const Shape w = trans_w ? Shape{s.classes, s.depth} : Shape{s.depth, s.classes};
  OneNode node{"LinearCrossEntropyGrad",
               attributes,
               {random_floats({s.rows, s.depth}, 1), random_floats(w, 2), labels(s.rows, s.classes, ignore)},
               {true, true, true}};
  if (bias) node.inputs.push_back(random_floats({s.classes}, 4)), node.outputs.push_back(true);
  return node;
}

OneNode loss_of(OneNode node) {
  node.op = "LinearCrossEntropy";
  node.outputs = {true};
  return node;
}

TEST_P(LinearCrossEntropyKernel, IsTheReferenceAndSoIsItsGradient) {
  for (const Linear &sizes : {Linear{1, 3, 4}, Linear{37, 16, 50}, Linear{100, 8, 33}})
    for (bool trans_w : {true, false})
      for (const char *reduction : {"mean", "sum"})
        for (bool ignore : {false, true})
          for (bool bias : {false, true}) {
            const OneNode node = linear(sizes, trans_w, reduction, ignore, bias);
            expect_reference(node);
            expect_reference(loss_of(node));
          }
}

TEST_P(LinearCrossEntropyKernel, SmoothsLabelsWeighsRowsAndKeepsLogitsSmall) {
  for (const char *reduction : {"mean", "sum"})
    for (const Attributes &attributes : mixed_forms(reduction)) {
      OneNode node = linear({37, 16, 50}, true, reduction, true, true);
      for (const char *name : {"label_smoothing", "z_loss", "focal"})
        node.attributes.set(name, attributes.real(name, 0));
      node.inputs.push_back(weights(37));
      expect_reference(node);
      expect_reference(loss_of(node));
    }
}

TEST_P(LinearCrossEntropyKernel, GivesEachRowALossAndTakesAGradientForEach) {
  for (bool bias : {false, true}) {
    OneNode node = linear({37, 16, 50}, true, "none", true, bias);
    node.inputs.resize(5);
    expect_reference(loss_of(node));
    node.inputs.push_back(random_floats({37}, 6));
    expect_reference(node);
  }
}

// The factor on a loss multiplies its gradients before they are rounded.
TEST_P(LinearCrossEntropyKernel, MultipliesByTheGradientOfTheLoss) {
  for (double dloss : {1.0, -0.3, 8.0})
    for (bool bias : {false, true}) {
      OneNode node = linear({37, 16, 50}, true, "mean", true, bias);
      node.inputs.resize(5);
      node.inputs.push_back(floats({}, {dloss}));
      expect_reference(node);
    }
  OneNode tiny = linear({37, 16, 50}, true, "mean", true, false);  // gradients vanish if they are rounded first
  for (Array *operand : {&tiny.inputs[0], &tiny.inputs[1]}) {
    std::vector<double> values = operand->doubles();
    for (double &value : values) value *= 1e-7;
    *operand = floats(operand->shape(), values);
  }
  tiny.inputs.resize(5);
  tiny.inputs.push_back(floats({}, {0x1p20}));
  expect_reference(tiny);
}

TEST_P(LinearCrossEntropyKernel, SlicesAddUpToTheWhole) {
  // The CPU computes the logits in four slices, of which the last has fewer rows. In narrow types, three slices form
  // one block and the last slice another. The emulated device has smaller slices.
  const std::int64_t classes = GetParam()->name == "emulated" ? 1'001 : 270'001;
  expect_reference(linear({200, 2, classes}, false, "mean", true, true));
}

TEST_P(LinearCrossEntropyKernel, FrozenWeightsCostNoGradient) {
  OneNode node = linear({20, 8, 30}, true, "mean", false, false);
  node.outputs = {true, true, false};
  expect_reference(node);
  node.outputs = {true, false, true};
  expect_reference(node);
  // Without the gradient of w, the CPU computes these logits in three slices.
  OneNode large = linear({200, 2, GetParam()->name == "emulated" ? 1'001 : 50'001}, true, "mean", false, false);
  large.outputs = {true, true, false};
  expect_reference(large);
}

// If a loss is scaled or a penalty is added, another node computes the loss. LinearCrossEntropyGrad then computes only
// the gradients, and its first output, the loss, is absent.
TEST_P(LinearCrossEntropyKernel, ALossThatNobodyReadsIsNotWritten) {
  for (const char *reduction : {"mean", "sum"})
    for (bool bias : {false, true}) {
      OneNode node = linear({20, 8, 30}, true, reduction, false, bias);
      node.inputs.resize(5);
      node.inputs.push_back(floats({}, {0.5}));
      node.outputs[0] = false;
      expect_reference(node);
    }
}

Attributes taught(const std::string &reduction, double temperature) {
  return {{"reduction", reduction}, {"temperature", temperature}};
}

TEST_P(CrossEntropyKernel, AgainstATeacherIsTheReferenceAndSoIsItsGradient) {
  for (const Shape &shape : {Shape{1, 1}, Shape{7, 5}, Shape{12, 1000}, Shape{3, 5003}})
    for (const char *reduction : {"mean", "sum", "none"})
      for (const double temperature : {1.0, 2.5}) {
        const Array logits = random_floats(shape, 1, -8, 8), teacher = random_floats(shape, 2, -8, 8);
        const OneNode node{"CrossEntropy", taught(reduction, temperature), {logits, teacher}, {true, true}};
        expect_reference(node);
        const std::vector<Array> results = reference(node);
        expect_reference(
            {"CrossEntropyGrad", node.attributes, {random_floats(results[0].shape(), 3), logits, teacher, results[1]}});
      }
}

// A logit of -inf excludes its class. The teacher excludes the first 400 classes of each row, and the student the first
// 40.
TEST_P(CrossEntropyKernel, ClassesThatATeacherExcludesCountForNothing) {
  const Shape shape = {5, 700};
  std::vector<double> logits = random_floats(shape, 1, -8, 8).doubles(),
                      wanted = random_floats(shape, 2, -8, 8).doubles();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (i % 700 < 40) logits[i] = -HUGE_VAL;
    if (i % 700 < 400) wanted[i] = -HUGE_VAL;
  }
  const Array student = floats(shape, logits), teacher = floats(shape, wanted);
  const OneNode node{"CrossEntropy", taught("mean", 1.5), {student, teacher}, {true, true}};
  expect_reference(node);
  const std::vector<Array> results = reference(node);
  expect_reference({"CrossEntropyGrad", node.attributes, {Array::scalar(DType::f32, 1), student, teacher, results[1]}});
}

OneNode taught_linear(const Linear &s, bool trans_w, const char *reduction, bool bias) {
  OneNode node = linear(s, trans_w, reduction, false, bias);
  node.attributes.set("temperature", 2.5);
  node.inputs[2] = random_floats({s.rows, s.classes}, 8, -4, 4);
  return node;
}

TEST_P(LinearCrossEntropyKernel, AgainstATeacherIsTheReferenceAndSoIsItsGradient) {
  for (const Linear &sizes : {Linear{1, 3, 4}, Linear{37, 16, 50}, Linear{100, 8, 33}})
    for (bool trans_w : {true, false})
      for (const char *reduction : {"mean", "sum", "none"})
        for (bool bias : {false, true}) {
          OneNode node = taught_linear(sizes, trans_w, reduction, bias);
          const bool per_row = std::string_view(reduction) == "none";
          expect_reference(loss_of(node));
          node.inputs.resize(5);
          node.inputs.push_back(random_floats(per_row ? Shape{sizes.rows} : Shape{}, 6));
          expect_reference(node);
        }
}

TEST_P(LinearCrossEntropyKernel, AgainstATeacherSlicesAddUpToTheWhole) {
  // The CPU computes these logits in three slices. Its slices are smaller if w and the bias are frozen.
  OneNode node = taught_linear({150, 2, GetParam()->name == "emulated" ? 1'001 : 65'001}, false, "mean", true);
  node.outputs = {true, true, false, false};
  expect_reference(node);
}

TEST_P(CrossEntropyKernel, LabelOutsideTheClassesIsAnErrorThatNamesIt) {
  for (std::int64_t label : {std::int64_t{700}, std::int64_t{-1}})
    expect_error({"CrossEntropy",
                  form("mean", false),
                  {random_floats({3, 512}, 1), Array::from_integers({DType::i64, {3}}, {1, label, 0})},
                  {true, true}},
                 "label " + std::to_string(label) + " of row 1 is outside 0..511");
}

}  // namespace
}  // namespace protrain::test::loss_test
