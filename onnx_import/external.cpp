// The location of an external file is checked first as text. Then its real path, with all links resolved, is checked
// and opened without following links. So a link that someone creates between check and opening causes an error.
#include "onnx_import/external.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace protrain::onnx_import {

namespace {

constexpr std::size_t kMaxLocationBytes = 4096;

bool is_absolute(std::string_view location) {
  const bool drive = location.size() >= 2 && location[1] == ':';
  return location.front() == '/' || location.front() == '~' || drive || location.find('\\') != location.npos ||
         location.find("://") != location.npos;
}

std::string check_location(const std::string &location, const std::string &subject) {
  const std::string shown = printable(location);
  require(!location.empty() && location != "." && location != "..", Code::format, subject,
          "external data location \"{}\" names no file", shown);
  require(location.size() <= kMaxLocationBytes, Code::format, subject,
          "external data location of {} bytes; at most {} are allowed", location.size(), kMaxLocationBytes);
  require(std::none_of(location.begin(), location.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }),
          Code::format, subject, "external data location \"{}\" holds control characters", shown);
  require(location.front() != '*' && location.find("_MEM_ADDR_") == location.npos, Code::path, subject,
          "external data location \"{}\" is an unknown marker, not a file", shown);
  require(!is_absolute(location), Code::path, subject,
          "external data location \"{}\" is absolute; it must be relative to the model", shown);
  std::string plain;
  for (const std::string &part : split(location, '/')) {
    require(part != "..", Code::path, subject, "external data location \"{}\" escapes model directory", shown);
    if (!part.empty() && part != ".") plain += (plain.empty() ? "" : "/") + part;
  }
  require(!plain.empty(), Code::format, subject, "external data location \"{}\" names no file", shown);
  return plain;
}

std::uint64_t check_number(const StringPair &entry, const std::string &subject) {
  const std::optional<std::int64_t> value = parse_integer(entry.value());
  require(value && *value >= 0, Code::format, subject, "external data {} \"{}\" is not a plain decimal number",
          entry.key(), printable(entry.value()));
  return static_cast<std::uint64_t>(*value);
}

std::string check_digest(std::string text, const std::string &subject) {
  constexpr std::size_t kDigits = 40;
  for (char &c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  require(text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == text.npos, Code::format, subject,
          "external data checksum \"{}\" is not a SHA-1 of 40 digits", printable(text));
  return text;
}

}  // namespace

ExternalData parse_external(const TensorProto &tensor, const std::string &subject) {
  constexpr std::array<std::string_view, 4> kKeys{"location", "offset", "length", "checksum"};
  std::array<const StringPair *, 4> found{};
  for (const StringPair &entry : tensor.external_data()) {
    const auto key = static_cast<std::size_t>(std::find(kKeys.begin(), kKeys.end(), entry.key()) - kKeys.begin());
    if (key == kKeys.size()) continue;
    require(found[key] == nullptr, Code::format, subject, "external data {} given twice", kKeys[key]);
    found[key] = &entry;
  }
  require(found[0] != nullptr, Code::format, subject, "external data without a location");
  ExternalData external;
  external.location = check_location(found[0]->value(), subject);
  if (found[1] != nullptr) external.offset = check_number(*found[1], subject);
  if (found[2] != nullptr) external.length = check_number(*found[2], subject);
  if (found[3] != nullptr) external.checksum = check_digest(found[3]->value(), subject);
  return external;
}

File open_external(const std::vector<std::string> &roots, const std::string &location, const std::string &subject) {
  require(!roots.empty(), Code::path, subject,
          "external data \"{}\" of a model in memory; give the directory of its external data files",
          printable(location));
  const std::string &directory = roots.front();
  const std::optional<std::string> real = real_path(directory + "/" + location);
  if (!real) return File::open_beneath(directory, location);  // throws, and names the missing file or the dangling link
  for (const std::string &named : roots) {
    std::string root = real_path(named).value_or(named);
    if (root.back() != '/') root += '/';
    if (!real->starts_with(root)) continue;
    return File::open_beneath(root, real->substr(root.size()));
  }
  fail(Code::path, subject, "external data \"{}\" is a link that escapes model directory {}", printable(location),
       printable(directory));
}

}  // namespace protrain::onnx_import
