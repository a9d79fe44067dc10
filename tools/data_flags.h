// Flags of the command line about data.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tool {

struct DataFlags {
  std::vector<std::string> arrays;  // NAME=FILE, or a directory or safetensors file with an array for each input
  std::vector<std::string> tokens;  // FILE or FILE=WEIGHT
  std::string token_type;           // "uint16", "uint32", or "": the file decides
  std::int64_t batch = 0, sequence = 0;
  std::optional<std::string> labels;       // "same" or "next"; nothing: "same"
  std::optional<std::uint64_t> separator;  // the token that ends a document; nothing: windows are consecutive tokens
  std::optional<std::uint64_t> shuffle;    // the seed of the order; nothing: the order of the files

  bool of_evaluations = false;

  // Returns the flag that gives these data: "--input" for "input", or "--eval-input".
  std::string name_of(const std::string &flag) const { return (of_evaluations ? "--eval-" : "--") + flag; }
  void add_to(CLI::App &command);
  bool given() const { return !arrays.empty() || !tokens.empty() || batch > 0 || !for_tokens().empty(); }
  std::string for_tokens() const;    // one of the given flags that need --tokens; "" if there is none
  DataFlags without_tokens() const;  // the flags without --tokens and those that need it
};

CLI::Validator whole_number(const std::string &name);  // accepts digits; `name`: of the value, in the help
CLI::Validator positive_number();                      // accepts whole numbers above 0

}  // namespace tool
