#include "data_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

namespace tool {

namespace {

// Returns an error message if `text` is not a whole number of at least `least`; else "". The message ends with `range`,
// which names the limit in words, such as "above 0".
std::string objection(const std::string &text, std::uint64_t least, const char *range) {
  std::uint64_t number = 0;
  const bool whole = text.find_first_not_of("0123456789") == std::string::npos;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (whole && error == std::errc::result_out_of_range) return fmt::format("'{}' is too large", text);
  return whole && number >= least ? "" : fmt::format("'{}' is not a whole number {}", text, range);
}

}  // namespace

CLI::Validator whole_number(const std::string &name) {
  return {[](const std::string &text) { return objection(text, 0, "from 0"); }, name};
}

CLI::Validator positive_number() {
  return {[](const std::string &text) { return objection(text, 1, "above 0"); }, "N"};
}

void DataFlags::add_to(CLI::App &command) {
  command.add_option(
      "--input", arrays,
      "NAME=FILE, one per graph input, or one directory of files NAME.npy or one safetensors file for all; FILE is "
      ".npy or "
      "safetensors with a tensor NAME; axis 0 counts batches, or samples if the array has as many axes as the input, "
      "and "
      "is cycled; all inputs need as many, or 1 batch for every batch; sets symbolic dimensions that no --dim gives");
  command.add_option(
      "--tokens", tokens,
      "FILE or FILE=WEIGHT, several times: token ids for input_ids and labels, raw or in llm.c's format, read in "
      "consecutive windows of --sequence tokens, cycled; with weights the files take turns, else one follows the "
      "other");
  command
      .add_option("--token-type", token_type,
                  "type of the ids in a raw token file [uint16]; a file in llm.c's format names its own")
      ->check(CLI::IsMember({"uint16", "uint32"}));
  command.add_option("--batch", batch, "windows or samples in a batch")->check(positive_number());
  command.add_option("--sequence", sequence, "tokens in a window")->check(positive_number());
  command
      .add_option(
          "--labels", labels,
          "same: labels are the ids, for graphs that shift them inside or with --loss-shift 1; next: each label is the "
          "following token; a model with --loss needs this or --loss-shift 1 [same]")
      ->check(CLI::IsMember({"same", "next"}));
  command
      .add_option("--separator", separator,
                  "ID: the token that ends a document; documents are packed into windows and do not see each other")
      ->check(whole_number(""));
}

std::string DataFlags::for_tokens() const {
  if (!token_type.empty()) return "--token-type";
  if (separator) return "--separator";
  if (labels) return "--labels";
  return sequence > 0 ? "--sequence" : "";
}

DataFlags DataFlags::without_tokens() const {
  return {.arrays = arrays,
          .tokens = {},
          .token_type = "",
          .batch = batch,
          .labels = {},
          .separator = {},
          .shuffle = shuffle};
}

}  // namespace tool
