// Names that a file may contain: short, UTF-8, without control characters.
#pragma once

#include <cstddef>
#include <string>

namespace protrain::onnx_import {

inline constexpr std::size_t kMaxNameBytes = 4096;

// Throws Code::format unless `text` is UTF-8 without control characters and has at most kMaxNameBytes.
void check_text(const std::string &text, const std::string &subject);
// Checks a name like check_text(), and throws Code::format if it is empty. `what` says what has the name, such as
// "initializer".
void check_name(const std::string &name, const std::string &subject, const char *what);

}  // namespace protrain::onnx_import
