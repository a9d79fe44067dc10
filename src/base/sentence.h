// Makes the sentence that shows an error to people.
#pragma once

#include <string>
#include <string_view>

namespace protrain {

// Returns `text`, with "subject: " in front of it if the text does not name the subject. The subject is made
// printable(). Few programs show the subject too, so the sentence must make sense alone.
std::string sentence_about(std::string_view subject, std::string_view text);

}  // namespace protrain
