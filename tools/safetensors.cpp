#include "safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "handles.h"

namespace tool {

namespace {

constexpr std::uint64_t kMostHeaderBytes = 100 << 20;  // the format's own limit

struct Type {
  const char *name;
  protrain_dtype dtype;
};
constexpr Type kTypes[] = {{"F32", PROTRAIN_FLOAT32},   {"F64", PROTRAIN_FLOAT64}, {"F16", PROTRAIN_FLOAT16},
                           {"BF16", PROTRAIN_BFLOAT16}, {"I8", PROTRAIN_INT8},     {"I16", PROTRAIN_INT16},
                           {"I32", PROTRAIN_INT32},     {"I64", PROTRAIN_INT64},   {"U8", PROTRAIN_UINT8},
                           {"U16", PROTRAIN_UINT16},    {"U32", PROTRAIN_UINT32},  {"U64", PROTRAIN_UINT64},
                           {"BOOL", PROTRAIN_BOOL}};

struct Header {
  nlohmann::json tensors;
  std::uint64_t end = 0;  // the tensors' bytes begin here
};

Header header_of(const InputFile &file) {
  std::uint64_t length = 0;
  if (file.size() >= sizeof length) file.read(0, &length, sizeof length);
  if (length < 2 || length > kMostHeaderBytes || length > file.size() - sizeof length)
    throw Failure(fmt::format("{}: not a safetensors file", file.path()));
  std::string text(length, '\0');
  file.read(sizeof length, text.data(), text.size());
  Header header = {nlohmann::json::parse(text, nullptr, false), sizeof length + length};
  if (!header.tensors.is_object()) throw Failure(fmt::format("{}: not a safetensors file", file.path()));
  header.tensors.erase("__metadata__");
  return header;
}

std::vector<std::string> names_of(const Header &header) {
  std::vector<std::string> names;
  for (const auto &item : header.tensors.items()) names.push_back(item.key());
  return names;
}

}  // namespace

std::vector<std::string> safetensors_names(const InputFile &file) { return names_of(header_of(file)); }

ArrayLayout safetensors_layout(const InputFile &file, const std::string &tensor) {
  const Header header = header_of(file);
  const auto found = header.tensors.find(tensor);
  if (found == header.tensors.end())
    throw Failure(
        fmt::format("{}: no tensor {}; its tensors are {}", file.path(), tensor, fmt::join(names_of(header), ", ")));
  try {
    ArrayLayout layout;
    const auto type = found->at("dtype").get<std::string>();
    const auto known =
        std::find_if(std::begin(kTypes), std::end(kTypes), [&](const Type &t) { return type == t.name; });
    if (known == std::end(kTypes))
      throw Failure(fmt::format("{}: elements of type {} are not known", file.path(), type.substr(0, 8)));
    layout.dtype = known->dtype;
    layout.shape = found->at("shape").get<std::vector<std::int64_t>>();
    const auto begin = found->at("data_offsets").at(0).get<std::uint64_t>(),
               end = found->at("data_offsets").at(1).get<std::uint64_t>(), all = file.size() - header.end;
    const bool counts =
        std::all_of(layout.shape.begin(), layout.shape.end(), [](std::int64_t dim) { return dim >= 0; });
    if (!counts || begin > end || end > all || !takes_bytes(layout.dtype, layout.shape, end - begin))
      throw Failure(fmt::format("{}: the bytes of {} do not fit its shape", file.path(), tensor));
    layout.offset = header.end + begin;
    return layout;
  } catch (const nlohmann::json::exception &) {
    throw Failure(fmt::format("{}: the entry of {} is no tensor's", file.path(), tensor));
  }
}

}  // namespace tool
