// Reads cases. Parses protobuf's wire format itself, and lets the library read the tensors.
#include "onnx_nodes/case.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "onnx_import/wire.h"

namespace protrain::test {

namespace {

constexpr const char *kInstalled = "/usr/share/libonnx-testdata/data/node";

// In ONNX 1.17 (Debian 13) this case expects a mean that counts places behind the pads. In later versions of ONNX it
// does not count them, as ONNX Runtime and PyTorch do not.
constexpr const char *kMistaken = "test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True";
constexpr std::int64_t kOldestOpset = 7;

std::string contents(const std::filesystem::path &path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

std::uint64_t read_varint(std::string_view message, std::size_t &at) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(message.at(at++));
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
}

std::string_view only_field(std::string_view message, int number) {
  for (const Field &field : fields(message))
    if (field.number == number) return field.bytes;
  return {};
}

void read_node(std::string_view node, Case &made) {
  const std::string domain(only_field(node, 7));
  made.op = (domain.empty() || domain == "ai.onnx" ? "" : domain + "::") + std::string(only_field(node, 4));
  ++made.node_count;
}

bool is_tensor(std::string_view value_info) {
  const std::vector<Field> type = fields(only_field(value_info, 2));
  return type.size() == 1 && type[0].number == 1;
}

// Reads operator, opset and inputs of the model.
//   The importer does not accept opsets before kOldestOpset, so kOldestOpset replaces an older one. The node
// still means the same: in Debian's package, cases of older opsets use only operators that have not changed since.
void read_model(std::string bytes, Case &made) {
  for (const Field &field : fields(bytes)) {
    if (field.number == 8 && only_field(field.bytes, 1).empty())
      for (const Field &inner : fields(field.bytes))
        if (inner.number == 2) made.opset = static_cast<std::int64_t>(inner.value);
    if (field.number != 7) continue;
    for (const Field &part : fields(field.bytes)) {
      if (part.number == 1) read_node(part.bytes, made);
      if (part.number == 11) made.names.emplace_back(only_field(part.bytes, 1));
      if (part.number == 11 || part.number == 12) made.only_tensors &= is_tensor(part.bytes);
    }
  }
  made.opset = std::max(made.opset, kOldestOpset);
  made.model = with_opset(bytes, made.opset);
}

}  // namespace

std::vector<Field> fields(std::string_view message) {
  std::vector<Field> found;
  for (std::size_t at = 0; at < message.size();) {
    const std::size_t start = at;
    const std::uint64_t tag = read_varint(message, at);
    Field field{.number = static_cast<int>(tag >> 3), .value = 0, .bytes = {}, .whole = {}};
    if ((tag & 7) == 0) {
      field.value = read_varint(message, at);
    } else if ((tag & 7) == 2) {
      const std::uint64_t count = read_varint(message, at);
      if (count > message.size() - at) throw std::runtime_error("a field is longer than its message");
      field.bytes = message.substr(at, count);
      at += count;
    } else {
      at += (tag & 7) == 1 ? 8 : 4;
    }
    field.whole = message.substr(start, at - start);
    found.push_back(field);
  }
  return found;
}

std::string with_opset(std::string_view model, std::int64_t opset) {
  std::string out;
  for (const Field &part : fields(model)) {
    const bool names_opset = part.number == 8 && only_field(part.bytes, 1).empty();
    out += names_opset ? field(8, field(2, opset)) : std::string(part.whole);
  }
  return out;
}

std::vector<Case> installed_cases() {
  std::vector<Case> cases;
  if (!std::filesystem::exists(kInstalled)) return cases;
  for (const auto &entry : std::filesystem::directory_iterator(kInstalled)) {
    if (entry.path().filename() == kMistaken) continue;
    Case made{.name = entry.path().filename(), .op = {}, .model = {}, .inputs = {}, .outputs = {}, .names = {}};
    read_model(contents(entry.path() / "model.onnx"), made);
    const std::filesystem::path data = entry.path() / "test_data_set_0";
    const auto read_all = [&](const std::string &kind, std::vector<std::string> &to) {
      for (int i = 0;; ++i) {
        const auto file = data / (kind + "_" + std::to_string(i) + ".pb");
        if (!std::filesystem::exists(file)) return;
        to.push_back(contents(file));
      }
    };
    read_all("input", made.inputs);
    read_all("output", made.outputs);
    cases.push_back(std::move(made));
  }
  std::ranges::sort(cases, {}, &Case::name);
  return cases;
}

std::vector<Case> packed_cases(const std::string &path) {
  const std::string pack = contents(path);
  std::vector<Case> cases;
  for (const Field &one : fields(pack)) {
    Case made;
    for (const Field &part : fields(one.bytes)) {
      if (part.number == 1) made.name = part.bytes;
      if (part.number == 2) read_model(std::string(part.bytes), made);
      if (part.number == 3) made.inputs.emplace_back(part.bytes);
      if (part.number == 4) made.outputs.emplace_back(part.bytes);
    }
    cases.push_back(std::move(made));
  }
  return cases;
}

std::vector<graph::Array> arrays_of(const std::vector<std::string> &tensors) {
  std::vector<graph::Array> arrays;
  if (tensors.empty()) return arrays;
  Wire wire;  // a model with the tensors as initializers
  wire.initializers.clear();
  wire.inputs.clear();
  wire.nodes = {node("Identity", {"t0"}, {"y"})};
  const auto name_of = [](std::size_t i) { return "t" + std::to_string(i); };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::string bytes;
    for (const Field &part : fields(tensors[i]))
      if (part.number != 8) bytes += part.whole;
    wire.initializers.push_back(bytes + field(8, name_of(i)));
  }
  const Scratch scratch;
  const auto model = open_bytes(scratch, wire.bytes());
  for (std::size_t i = 0; i < tensors.size(); ++i) arrays.push_back(model->load(name_of(i)));
  return arrays;
}

}  // namespace protrain::test
