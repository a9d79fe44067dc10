#include "session/export.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "onnx_import/floats.h"

namespace protrain::session {

namespace {

// Writes a matrix of `shape`, stored row by row, as its transpose.
void transpose(std::span<const std::byte> from, const Shape &shape, std::byte *to) {
  constexpr std::size_t kSize = sizeof(float);
  const auto rows = static_cast<std::size_t>(shape[0]), columns = static_cast<std::size_t>(shape[1]);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      std::memcpy(to + (j * rows + i) * kSize, &from[(i * columns + j) * kSize], kSize);
}

// Reads a parameter that the session shows.
std::vector<float> values_of(const Parameters &parameters, const state::Read &read, const std::string &name) {
  const std::size_t p = parameters.find(name).value();
  std::vector<float> values(parameters.elements(p));
  read(p, 0, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

// Writes W plus its adapter's change. W is a trained parameter, or lies in the file.
void export_adapted(const draft::Draft &draft, const Parameters &parameters, const state::Read &read,
                    const passes::Adapter &adapter, std::byte *out, bool transposed) {
  const graph::Array base = draft.file->load(draft.in_file(adapter.parameter)).densified();
  const auto count = element_count(base.shape());
  const std::vector<float> a = values_of(parameters, read, adapter.a.name),
                           b = values_of(parameters, read, adapter.b.name);
  std::vector<float> w(static_cast<std::size_t>(count));
  if (parameters.find(adapter.parameter))
    w = values_of(parameters, read, adapter.parameter);
  else
    onnx_import::convert_floats(base.dtype(), base.bytes(), count, DType::f32,
                                std::as_writable_bytes(std::span(w)).data());
  passes::add_change(adapter, a, b, adapter.transposed, w);
  if (transposed) {
    const std::vector<float> straight = w;
    transpose(std::as_bytes(std::span(straight)), base.shape(), std::as_writable_bytes(std::span(w)).data());
  }
  onnx_import::convert_floats(DType::f32, std::as_bytes(std::span(w)).data(), count, base.dtype(), out);
}

// The integers of a quantised weight cannot hold the sum with an adapter's change.
void require_floats(const draft::Draft &draft) {
  const graph::Graph &graph = draft.first().forward;
  for (const passes::Adapter &adapter : draft.adapters) {
    const graph::Type &type = graph.value(graph.find(adapter.parameter)).type;
    require(is_float(type.dtype), Code::unsupported, adapter.parameter,
            "its weights are quantised ({}), so its adapter cannot be merged into an export", to_text(type));
  }
}

// Writes an initializer's values to `out`. Returns false if it keeps those of the file: it is neither a parameter that
// changes nor tied to one.
bool export_initializer(const draft::Draft &draft, const Parameters &parameters, const state::Read &read,
                        const std::string &name, std::byte *out) {
  const auto tie = draft.ties.find(name);
  const bool tied = tie != draft.ties.end(), transposed = tied && tie->second.transposed;
  const std::string &parameter = tied ? tie->second.parameter : name;
  if (const passes::Adapter *adapter = draft.adapter_of(parameter)) {
    export_adapted(draft, parameters, read, *adapter, out, transposed);
    return true;
  }
  const std::optional<std::size_t> p = parameters.find(parameter);
  if (!p) return false;
  const std::uint64_t bytes = parameters.elements(*p) * sizeof(float);
  if (!transposed) {
    read(*p, 0, 0, {out, bytes});
    return true;
  }
  std::vector<std::byte> straight(bytes);
  read(*p, 0, 0, straight);
  transpose(straight, parameters.shape(*p), out);
  return true;
}

}  // namespace

void export_model(const draft::Draft &draft, const Parameters &parameters, const state::Read &read,
                  const std::string &path) {
  require_floats(draft);
  const auto weights = [&](const std::string &name, std::byte *out) {
    return export_initializer(draft, parameters, read, name, out);
  };
  draft.file->save(path, weights, onnx_import::kInlineBytes, draft.splits, draft.settings.export_as_computed);
}

}  // namespace protrain::session
