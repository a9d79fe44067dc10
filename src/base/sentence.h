// The sentence that an error is shown as.
#pragma once

#include <string>
#include <string_view>

namespace protrain {

// Returns `text`, after its printable() subject if the text does not name it. Few programs show the subject too, so the
// sentence must make sense alone.
std::string sentence_about(std::string_view subject, std::string_view text);

}  // namespace protrain
