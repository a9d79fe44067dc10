// Real models with a few bytes or fields changed: what comes of them is a legal graph or an Error, and never a crash.
// PROTRAIN_MUTATIONS asks for more of them than a test run makes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <stdexcept>

#include "base/error.h"
#include "fixtures.h"
#include "grad/training.h"
#include "onnx_import/model.pb.h"
#include "onnx_import/wire.h"
#include "passes/passes.h"

namespace protrain::test {
namespace {

using onnx_import::AttributeProto;
using onnx_import::GraphProto;
using onnx_import::ModelProto;
using onnx_import::NodeProto;
using onnx_import::TensorProto;

// One to four changes: of bytes, which the wire format may not survive, or of what messages say.
class Mutation {
  std::mt19937 random_;

  std::size_t below(std::size_t count) {
    return count == 0 ? 0 : std::uniform_int_distribution<std::size_t>(0, count - 1)(random_);
  }
  template <typename Repeated>
  auto any(Repeated *list) {
    return list->Mutable(static_cast<int>(below(static_cast<std::size_t>(list->size()))));
  }

 public:
  Mutation(const std::string &model, std::uint32_t seed) : random_(seed), model_(model) {}

  std::string make() {
    const bool of_bytes = below(4) == 0;
    std::string bytes = model_;
    if (!of_bytes && !proto_.ParseFromString(model_)) throw std::runtime_error("a fixture that does not parse");
    for (std::size_t n = 1 + below(4); n > 0; --n) {
      if (of_bytes)
        bytes[below(bytes.size())] = static_cast<char>(below(256));
      else if (proto_.functions_size() > 0 && below(2) == 0)
        change(*any(any(proto_.mutable_functions())->mutable_node()), *proto_.mutable_graph());
      else
        change(*proto_.mutable_graph());
    }
    return of_bytes ? bytes : proto_.SerializeAsString();
  }

 private:
  std::int64_t telling() {
    constexpr std::int64_t kTelling[] = {0,
                                         1,
                                         -1,
                                         2,
                                         3,
                                         -2,
                                         7,
                                         1 << 16,
                                         -(1 << 16),
                                         0x7fffffff,
                                         -0x80000000ll,
                                         1ll << 40,
                                         1ll << 62,
                                         std::numeric_limits<std::int64_t>::max(),
                                         std::numeric_limits<std::int64_t>::min()};
    return kTelling[below(std::size(kTelling))];
  }
  std::string any_name(GraphProto &graph) {
    if (below(8) == 0) return "";
    if (below(4) == 0) return any(graph.mutable_initializer())->name();
    const NodeProto &node = *any(graph.mutable_node());
    return node.output(0);
  }

  void change(TensorProto &tensor) {
    const std::size_t dims = static_cast<std::size_t>(tensor.dims_size());
    switch (below(4)) {
      case 0:
        if (dims > 0) tensor.set_dims(static_cast<int>(below(dims)), telling());
        break;
      case 1:
        tensor.set_data_type(static_cast<std::int32_t>(below(24)));
        break;
      default:  // as int64, what most small constants are
        if (tensor.raw_data().size() >= sizeof(std::int64_t)) {
          const std::int64_t value = telling();
          std::string &raw = *tensor.mutable_raw_data();
          std::memcpy(&raw[below(raw.size() / sizeof value) * sizeof value], &value, sizeof value);
        }
    }
  }

  void change(AttributeProto &attribute) {
    if (attribute.has_t()) return change(*attribute.mutable_t());
    if (attribute.ints_size() > 0 && below(3) > 0)
      attribute.set_ints(static_cast<int>(below(static_cast<std::size_t>(attribute.ints_size()))), telling());
    else if (attribute.ints_size() > 0)
      attribute.add_ints(telling());
    if (attribute.has_i()) attribute.set_i(telling());
    if (attribute.has_f()) attribute.set_f(below(2) == 0 ? std::numeric_limits<float>::quiet_NaN() : -1e30f);
    if (attribute.has_s()) attribute.set_s("none");
    if (below(8) == 0) attribute.set_type(static_cast<std::int32_t>(below(16)));
    if (below(8) == 0) attribute.set_name("axis");
  }

  void change(NodeProto &node, GraphProto &graph) {
    switch (below(6)) {
      case 0:
        node.set_op_type(any(graph.mutable_node())->op_type());
        break;
      case 1:
        if (node.input_size() > 0)
          node.set_input(static_cast<int>(below(static_cast<std::size_t>(node.input_size()))), any_name(graph));
        break;
      case 2:
        node.add_input(any_name(graph));
        break;
      case 3:
        if (node.input_size() > 0) node.mutable_input()->RemoveLast();
        break;
      default:
        if (node.attribute_size() > 0) change(*any(node.mutable_attribute()));
    }
  }

  void change(GraphProto &graph) {
    switch (below(8)) {
      case 0:
        return change(*any(graph.mutable_initializer()));
      case 1: {
        auto *shape = any(graph.mutable_input())->mutable_type()->mutable_tensor_type()->mutable_shape();
        if (shape->dim_size() > 0) any(shape->mutable_dim())->set_dim_value(telling());
        return;
      }
      case 2:
        return graph.mutable_output(0)->set_name(any_name(graph));
      default:
        return change(*any(graph.mutable_node()), graph);
    }
  }

  const std::string &model_;
  ModelProto proto_;
};

// True where a training graph came of it.
bool trains(const Scratch &scratch, const std::string &bytes) {
  try {
    const auto file = open_bytes(scratch, bytes);
    onnx_import::DimBindings dims;
    for (const std::string &name : file->symbolic_dims()) dims[name] = 3;
    const auto load = [&](const std::string &name) { return file->load(name); };
    passes::Prepared prepared = passes::prepare(file->graph(dims), load, {});
    for (graph::ValueId out : prepared.graph.outputs)
      if (prepared.graph.value(out).type == graph::Type{DType::f32, {}}) {
        grad::build(std::move(prepared.graph), out);
        return true;
      }
    return false;
  } catch (const Error &error) {
    EXPECT_NE(error.code, Code::internal) << error.subject << ": " << error.text;
    return false;
  }
}

int mutations() {
  const char *more = std::getenv("PROTRAIN_MUTATIONS");
  return more != nullptr ? std::atoi(more) : 60;
}

class Mutated : public testing::TestWithParam<const char *> {};

TEST_P(Mutated, ModelsAreSurvived) {
  const Scratch scratch;
  std::ostringstream model;
  model << std::ifstream(fixture(std::string(GetParam()) + ".onnx"), std::ios::binary).rdbuf();
  ASSERT_TRUE(trains(scratch, model.str()));
  int trained = 0;
  for (int seed = 0; seed < mutations() && !HasFailure(); ++seed) {
    const std::string bytes = Mutation(model.str(), static_cast<std::uint32_t>(seed)).make();
    trained += trains(scratch, bytes) ? 1 : 0;
    if (HasFailure()) scratch.put("failed.onnx", bytes);
  }
  std::printf("[ figures  ] %d of %d mutations still train\n", trained, mutations());
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Mutated,
                         testing::Values("gpt2-static-opset18", "llama-dynamic-opset23", "mistral-dynamic-opset18",
                                         "torchscript-gpt2-opset13", "dropout-gpt", "root", "functions"),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace protrain::test
