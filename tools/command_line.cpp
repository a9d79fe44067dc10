#include "command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "handles.h"

namespace tool {

namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // row[j]: distance of a's first i letters to b's first j
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// Returns the word of the list that the user most likely meant by `word`, which may be misspelt or only a beginning.
// Returns "" if none is near.
std::string nearest_of(const std::string &word, const std::vector<std::string> &words) {
  constexpr std::size_t kLongest = 64;  // edit_distance takes quadratic time
  constexpr std::size_t kShortestBeginning = 3;
  std::string nearest;
  std::size_t least = std::max<std::size_t>(word.size() / 2, 1) + 1;
  for (const std::string &candidate : words) {
    const bool begins = word.size() >= kShortestBeginning && candidate.starts_with(word);
    const std::size_t distance = begins ? 0 : edit_distance(word.substr(0, kLongest), candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

// Names that other tools give an option.
struct OtherName {
  std::string_view name, option;
};
constexpr OtherName kOtherNames[] = {{"lr", "learning-rate"},
                                     {"batch-size", "batch"},
                                     {"seq-len", "sequence"},
                                     {"sequence-length", "sequence"},
                                     {"max-grad-norm", "clip-norm"},
                                     {"gradient-clipping", "clip-norm"},
                                     {"gradient-accumulation-steps", "accumulation"}};

// Returns the message about an unknown option. `word` is the option with its dashes, and without a value.
std::string about_unknown_option(const CLI::App &command, const std::string &word) {
  const std::string name = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  if (command.get_option_no_throw(word) != nullptr)
    return fmt::format("{0} belongs behind the command: protrain {1} ... {0}", word, command.get_name());
  const auto *const other = std::ranges::find(kOtherNames, name, &OtherName::name);
  const std::string meant(other != std::end(kOtherNames) ? other->option : name);
  const bool known = command.get_option_no_throw("--" + meant) != nullptr;
  if (!known && (meant == "batch" || meant == "sequence"))
    return fmt::format("there is no option {0} of {1}; use --dim {2}=N", word, command.get_name(), meant);

  std::vector<std::string> names;
  for (const CLI::Option *option : command.get_options())
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  const std::string near = word.starts_with("--") ? nearest_of(name, names) : "", nearest = known ? meant : near;
  if (nearest.empty()) return fmt::format("there is no option {}; --help lists all options", word);
  return fmt::format("there is no option {}; did you mean --{}?", word, nearest);
}

// Returns the message if the command is missing or unknown. `words` are the words that the parser could not use.
std::string about_missing_command(const CLI::App &app, const std::vector<std::string> &words) {
  std::vector<std::string> names;
  for (const CLI::App *command : app.get_subcommands({})) names.push_back(command->get_name());
  if (words.empty()) return fmt::format("name a command: {}; --help explains them", fmt::join(names, ", "));

  const std::string nearest = nearest_of(words.front(), names);
  if (nearest.empty())
    return fmt::format("there is no command '{}'; the commands are {}", words.front(), fmt::join(names, ", "));
  return fmt::format("there is no command '{}'; did you mean {}?", words.front(), nearest);
}

// Says in the project's words what the parser found wrong with a value. The parser's texts begin with the option's name
// and a colon, or end with "NAME = VALUE".
std::string about_value(const CLI::ParseError &error) {
  const std::string text = error.what(), name = text.substr(0, text.find(':'));
  if (error.get_name() == "ConversionError") {
    const std::size_t equals = text.find(" = "), begin = name.size() + 2;
    if (equals != std::string::npos)
      return fmt::format("{}: '{}' is not a whole number from 0, or is too large", text.substr(begin, equals - begin),
                         text.substr(equals + 3));
  }
  if (const std::size_t known = text.find(" not in {"); known != std::string::npos && name != text) {
    std::string words = text.substr(known + 9, text.rfind('}') - known - 9);
    std::ranges::replace(words, ',', '|');
    return fmt::format("{}: '{}' is none of {}", name, text.substr(name.size() + 2, known - name.size() - 2), words);
  }
  if (error.get_name() == "ArgumentMismatch" && name != text)
    return name + (text.find("At Most") != std::string::npos ? " is given more than once" : " needs a value");
  return text;
}

std::string about_extra_word(const CLI::App &command, const std::string &word) {
  return fmt::format(
      "'{}' is one word too many for {}: a flag takes one value, and a pattern such as '*.bias' needs "
      "quotes",
      word, command.get_name());
}

// Returns the message about an error of the parser. An unknown option is reported before a missing one, because the
// unknown option may be the missing one, misspelt.
std::string sentence_about(const CLI::App &app, const CLI::ParseError &error) {
  const std::vector<std::string> words = app.remaining(true);
  const std::vector<CLI::App *> parsed = app.get_subcommands();
  if (parsed.empty() && !words.empty() && !words.front().starts_with('-')) return about_missing_command(app, words);
  for (const std::string &word : words)
    if (word.size() > 1 && word.front() == '-')
      return parsed.empty() ? "options belong behind a command; --help lists the commands"
                            : about_unknown_option(*parsed.front(), word.substr(0, word.find('=')));
  if (parsed.empty()) return about_missing_command(app, words);
  return words.empty() ? about_value(error) : about_extra_word(*parsed.front(), words.front());
}

}  // namespace

void parse_command_line(CLI::App &app, int argc, char **argv) {
  // "help train" is taken as "train --help", and "help" as "--help".
  std::vector<const char *> words(argv, argv + argc);
  if (argc > 1 && std::string_view(words[1]) == "help") {
    words.erase(words.begin() + 1);
    words.push_back("--help");
  }

  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::ParseError &error) {
    if (error.get_exit_code() != 0) throw UsageError(sentence_about(app, error));
    app.exit(error);
  }
}

}  // namespace tool
