#include "draft/parameter_list.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "state/strict_json.h"
#include "state/tensor_file.h"

namespace protrain::draft {

namespace {

constexpr std::uint64_t kMostHeader = 16 << 20;  // bytes, enough for some 100,000 tensors
constexpr std::uint64_t kMostText = 16 << 20;

std::string read_at(const File &file, std::uint64_t offset, std::uint64_t count) {
  std::string text(count, '\0');
  file.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

// True if the file starts with a header's length and a brace. A list of names, one per line, cannot start like this.
bool is_safetensors(const File &file) {
  return file.size() > state::kLengthBytes && read_at(file, state::kLengthBytes, 1) == "{" &&
         read_at(file, state::kLengthBytes - 1, 1) == std::string(1, '\0');
}

std::vector<std::string> names_of_tensors(const File &file) {
  const std::uint64_t length = state::header_length(read_at(file, 0, state::kLengthBytes), file.size(), file.path());
  require(length <= kMostHeader, Code::limit, file.path(), "a header of {} bytes; {} are read at most", length,
          kMostHeader);
  const Json header = state::parse_strictly(read_at(file, state::kLengthBytes, length), file.path());
  require(header.members() != nullptr, Code::format, file.path(), "its header is no JSON object");
  std::vector<std::string> names;
  for (const Json::Member &tensor : *header.members())
    if (tensor.key != "__metadata__") names.push_back(tensor.key);
  return names;
}

std::vector<std::string> names_of_lines(const File &file) {
  require(file.size() <= kMostText, Code::limit, file.path(), "{} bytes of names; {} are read at most", file.size(),
          kMostText);
  std::vector<std::string> names;
  for (std::string &line : split(read_at(file, 0, file.size()), '\n')) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) names.push_back(std::move(line));
  }
  return names;
}

}  // namespace

graph::FileDeclarations declarations_of(const std::string &parameters_from, const onnx_import::Model &model) {
  graph::FileDeclarations declared = model.declared();
  if (parameters_from.empty()) return declared;
  const File file = File::open(parameters_from);
  declared.list = is_safetensors(file) ? names_of_tensors(file) : names_of_lines(file);
  require(!declared.list->empty(), Code::format, file.path(),
          "no name in it; give a safetensors file, or names of parameters one a line");
  return declared;
}

}  // namespace protrain::draft
