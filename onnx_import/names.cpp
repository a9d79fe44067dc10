// Refuses names that would not print unchanged. All other names are safe in logs, options and paths.
#include "onnx_import/names.h"

#include "base/error.h"
#include "base/text.h"

namespace protrain::onnx_import {

void check_text(const std::string &text, const std::string &subject) {
  require(text.size() <= kMaxNameBytes, Code::format, subject, "a name of {} bytes; at most {} are allowed",
          text.size(), kMaxNameBytes);
  require(printable(text, 4 * kMaxNameBytes) == text, Code::format, subject, "the name \"{}\" is not plain UTF-8 text",
          printable(text));
}

void check_name(const std::string &name, const std::string &subject, const char *what) {
  require(!name.empty(), Code::format, subject, "required-field-empty: {} without a name", what);
  check_text(name, subject);
}

}  // namespace protrain::onnx_import
