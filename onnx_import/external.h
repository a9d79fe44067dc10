// Checks a tensor's external_data, and opens the file that it names. No other code opens such files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "onnx_import/model.pb.h"

namespace protrain::onnx_import {

struct ExternalData {
  std::string location;  // relative, without "." or ".." or empty parts
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> length;  // absent: to the end of the file
  std::string checksum;                 // SHA-1 of the whole file, 40 hexadecimal digits; empty if not given
};

// Reads the entries of external_data. Code::format for malformed entries, Code::path for a location that could lead out
// of the model's directory. Opens no file. Ignores keys that ONNX does not know.
ExternalData parse_external(const TensorProto &tensor, const std::string &subject);

// Opens the file `location` in the first of the directories `roots`. The file may be a link to a file in any of the
// roots. Throws Code::path for other links, and if `roots` is empty. Throws Code::io if there is no such file.
File open_external(const std::vector<std::string> &roots, const std::string &location, const std::string &subject);

}  // namespace protrain::onnx_import
