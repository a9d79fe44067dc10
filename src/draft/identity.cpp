#include "draft/identity.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/files.h"

namespace protrain::draft {

namespace {

constexpr std::uint64_t kBeginning = 4096;  // bytes that are read of a parameter

std::uint64_t sum_of(std::string_view text) { return checksum(std::as_bytes(std::span(text))); }

std::uint64_t sum_of_weights(const Draft &draft) {
  std::uint64_t sum = 0;
  std::vector<std::byte> part;
  for (const InFile &parameter : parameters_in_file(draft)) {
    part.resize(std::min(parameter.bytes, kBeginning));
    draft.file->read(draft.in_file(parameter.name), 0, part);
    sum = checksum(part, sum);
  }
  return sum;
}

std::uint64_t sum_of_adapter(const Draft &draft) {
  std::uint64_t sum = 0;
  std::vector<float> part;
  for (const passes::Adapter &adapter : draft.adapters)
    for (const passes::AdapterMatrix *matrix : {&adapter.a, &adapter.b}) {
      const auto elements = static_cast<std::uint64_t>(element_count(matrix->shape));
      part.resize(std::min(elements, kBeginning / sizeof(float)));
      draft.adapter->read(matrix->tensor, 0, part);
      sum = checksum(std::as_bytes(std::span(part)), sum);
    }
  return sum;
}

}  // namespace

std::vector<InFile> parameters_in_file(const Draft &draft) {
  std::vector<InFile> parameters;
  const graph::Graph &graph = draft.first().training.graph;
  const auto is_other = [&](const std::string &name) {
    return std::ranges::any_of(draft.rounded, [&](const passes::RoundedMatrix &matrix) {
      return std::ranges::find(matrix.others, name) != matrix.others.end();
    });
  };
  for (const graph::ValueId id : graph.parameters) {
    const graph::Value &value = graph.value(id);
    if (is_other(value.name) || passes::find_matrix(draft.adapters, value.name) != nullptr) continue;
    const auto matrix = std::ranges::find(draft.rounded, value.name, &passes::RoundedMatrix::parameter);
    const bool rounded = matrix != draft.rounded.end();
    // True if the training graph has the parameter in 16 bits. Model::read() returns the values of such a parameter as
    // float32.
    const bool narrow = value.type.dtype == DType::bf16 || value.type.dtype == DType::f16;
    const DType dtype = rounded || narrow ? DType::f32 : value.type.dtype;
    parameters.push_back({.name = value.name,
                          .bytes = byte_count(dtype, rounded ? matrix->shape : value.type.shape),
                          .frozen = value.frozen,
                          .rounding = rounded ? matrix->rounding : nullptr});
  }
  return parameters;
}

std::map<std::string, std::string> identities(const Draft &draft) {
  std::map<std::string, std::string> texts;
  texts["model"] =
      fmt::format("nodes {:016x}, weights {:016x}", sum_of(draft.first().forward.print()), sum_of_weights(draft));
  if (draft.adapter) texts["adapter"] = fmt::format("weights {:016x}", sum_of_adapter(draft));
  if (const std::string &plan = draft.settings.plan; !plan.empty())
    texts["plan"] = fmt::format("text {:016x}", sum_of(read_text(plan)));
  return texts;
}

}  // namespace protrain::draft
