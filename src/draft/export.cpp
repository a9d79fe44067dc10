#include "draft/export.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "onnx_import/floats.h"

namespace protrain::draft {

namespace {

// Writes a matrix of float32, stored row by row, as its transpose.
void transpose(const std::vector<float> &from, const Shape &shape, std::byte *to) {
  const auto rows = static_cast<std::size_t>(shape[0]), columns = static_cast<std::size_t>(shape[1]);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      std::memcpy(to + (j * rows + i) * sizeof(float), &from[i * columns + j], sizeof(float));
}

std::byte *bytes_of(std::vector<float> &values) { return std::as_writable_bytes(std::span(values)).data(); }

// Weights supplies the new values of the file's initializers to an export. It adds the changes of adapters, rounds the
// weights that base_precision rounds, and transposes values for initializers that are tied to a parameter's transpose.
// The constructor throws Code::unsupported if an adapter would have to be merged into integers.
class Weights {
 public:
  Weights(const Exported &model, const Values &values) : model_(model), values_(values) {
    for (const passes::Adapter &adapter : merged()) {
      const graph::Type &type = model.graph.value(model.graph.find(adapter.parameter)).type;
      require(is_float(type.dtype) || rounded(adapter.parameter) != nullptr, Code::unsupported, adapter.parameter,
              "its weights are quantised, so its adapter cannot be merged into them; save the adapter by itself "
              "(--save-adapter DIR), or, if DequantizeLinear reads the weights, export the model with inputs for it "
              "(export_adapters=inputs)");
    }
  }

  // Writes an initializer's new values to `out`. Returns false if the initializer keeps the file's values.
  bool write(const std::string &name, std::byte *out) const {
    const auto tie = model_.ties.find(name);
    const bool tied = tie != model_.ties.end(), transposed = tied && tie->second.transposed;
    const std::string &parameter = tied ? tie->second.parameter : name;
    if (passes::find_matrix(model_.adapters, parameter) != nullptr) return false;
    const passes::Adapter *adapter = found(merged(), &passes::Adapter::parameter, parameter);
    if (adapter != nullptr || rounded(parameter) != nullptr) {
      write_base(parameter, adapter, transposed, out);
      return true;
    }
    if (!transposed) return values_(parameter, out);
    std::vector<float> straight(elements(shape_of(parameter)));
    if (!values_(parameter, bytes_of(straight))) return false;
    transpose(straight, shape_of(parameter), out);
    return true;
  }

 private:
  const std::vector<passes::Adapter> &merged() const {
    static const std::vector<passes::Adapter> none;
    return model_.adapters_as_inputs ? none : model_.adapters;
  }
  template <typename T>
  static const T *found(const std::vector<T> &all, std::string T::*name, const std::string &wanted) {
    const auto at = std::ranges::find(all, wanted, name);
    return at == all.end() ? nullptr : &*at;
  }
  const passes::RoundedMatrix *rounded(const std::string &parameter) const {
    return found(model_.rounded, &passes::RoundedMatrix::parameter, parameter);
  }
  const Shape &shape_of(const std::string &parameter) const {
    return model_.graph.value(model_.graph.find(parameter)).type.shape;
  }
  static std::size_t elements(const Shape &shape) { return static_cast<std::size_t>(element_count(shape)); }

  std::vector<float> matrix(const passes::AdapterMatrix &matrix) const {
    std::vector<float> found(elements(matrix.shape));
    require(values_(matrix.name, bytes_of(found)), Code::internal, matrix.name, "a matrix without values");
    return found;
  }

  // Writes an adapted or rounded parameter as the step computes with it: its rounded weights plus the adapter's change.
  void write_base(const std::string &parameter, const passes::Adapter *adapter, bool transposed, std::byte *out) const {
    const graph::Split *split = found(model_.splits, &graph::Split::name, parameter);
    const graph::Array base = model_.file.load(split == nullptr ? parameter : split->original).densified();
    const std::int64_t count = element_count(base.shape());
    std::vector<float> w(static_cast<std::size_t>(count));
    if (!values_(parameter, bytes_of(w)))
      onnx_import::convert_floats(base.dtype(), base.bytes(), count, DType::f32, bytes_of(w));
    if (const passes::RoundedMatrix *to = rounded(parameter)) passes::round_floats(*to, w);
    if (adapter != nullptr)
      passes::add_change(*adapter, matrix(adapter->a), matrix(adapter->b), adapter->transposed, w);
    if (transposed) {
      const std::vector<float> straight = w;
      transpose(straight, base.shape(), bytes_of(w));
    }
    onnx_import::convert_floats(DType::f32, bytes_of(w), count, base.dtype(), out);
  }

  const Exported &model_;
  const Values &values_;
};

// Returns the low-rank changes whose matrices become inputs of the exported model. Returns none if adapters are merged.
std::vector<graph::LowRank> adapter_inputs(const Exported &model) {
  std::vector<graph::LowRank> inputs;
  if (!model.adapters_as_inputs) return inputs;
  for (const passes::Adapter &adapter : model.adapters) {
    graph::LowRank &input =
        inputs.emplace_back(graph::LowRank{.initializers = {{adapter.parameter, adapter.transposed}},
                                           .a = adapter.a.name,
                                           .b = adapter.b.name,
                                           .in = adapter.a.shape[1],
                                           .out = adapter.b.shape[0]});
    for (const auto &[name, tie] : model.ties)
      if (tie.parameter == adapter.parameter && name != adapter.parameter)
        input.initializers.push_back({name, adapter.transposed != tie.transposed});
  }
  return inputs;
}

}  // namespace

void export_model(const Exported &model, const Values &values, const std::string &path) {
  const Weights weights(model, values);
  model.file.save(path, [&](const std::string &name, std::byte *out) { return weights.write(name, out); },
                  {.splits = model.splits, .adapters = adapter_inputs(model), .as_computed = model.as_computed});
}

}  // namespace protrain::draft
