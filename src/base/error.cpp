#include "base/error.h"

namespace protrain {

void throw_error(Code code, std::string_view subject, fmt::string_view text, fmt::format_args args) {
  throw Error(code, std::string(subject), fmt::vformat(text, args));
}

}  // namespace protrain
