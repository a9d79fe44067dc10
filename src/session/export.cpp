#include "session/export.h"

#include <cstring>

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

// Writes an initializer's values to `out`. Returns false if it is neither a parameter nor tied to one.
bool export_initializer(const draft::Draft &draft, const Parameters &parameters, const state::Read &read,
                        const std::string &name, std::byte *out) {
  const auto tie = draft.ties.find(name);
  const bool tied = tie != draft.ties.end();
  const std::optional<std::size_t> p = parameters.find(tied ? tie->second.parameter : name);
  if (!p) return false;
  const std::uint64_t bytes = parameters.elements(*p) * sizeof(float);
  if (!tied || !tie->second.transposed) {
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
  const auto weights = [&](const std::string &name, std::byte *out) {
    return export_initializer(draft, parameters, read, name, out);
  };
  draft.file->save(path, weights, onnx_import::kInlineBytes, draft.splits, draft.settings.export_as_computed);
}

}  // namespace protrain::session
