// The forms of options that consist of several parts:
//   - Binding: "NAME=N", a symbolic dimension of a model and its size
//   - InputBinding: "NAME=VALUE,...", an input and its values
//   - LoraPattern: "GLOB[,rank=R][,alpha=A]", parameters to adapt
//   - GroupBinding: "GLOB,KEY=VALUE,...", parameters and how they are trained
//   - AlsoLoss: "OUTPUT,loss=KIND,KEY=VALUE,...", a further loss
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace protrain::draft {

struct Binding {
  std::string name;
  std::int64_t size = 0;  // >= 0

  std::string text() const { return name + "=" + std::to_string(size); }
};

// Returns an empty optional if `text` does not have the form of a Binding. A name may contain '='; the last '=' comes
// before the size.
std::optional<Binding> parse_binding(const std::string &text);

struct InputBinding {
  std::string name;
  std::vector<double> values;
};

// Returns an empty optional if `text` does not have the form of an InputBinding. Values are numbers, "true" or "false",
// separated by ','.
std::optional<InputBinding> parse_input_binding(const std::string &text);

// "GLOB[,rank=R][,alpha=A]": the parameters to adapt, and the values that replace lora_rank and lora_alpha.
struct LoraPattern {
  std::string pattern;
  std::optional<std::int64_t> rank;
  std::optional<double> alpha;
};

// Returns an empty optional if `text` does not have the form of a LoraPattern.
std::optional<LoraPattern> parse_lora(const std::string &text);

struct GroupBinding {
  std::string pattern;                                      // of the parameters' names
  std::optional<double> learning_rate_scale, weight_decay;  // >= 0; nothing: as the session's options say
};

// Returns an empty optional if `text` is not a pattern that is followed by one or more settings.
std::optional<GroupBinding> parse_group_binding(const std::string &text);

struct AlsoLoss {
  struct Setting {
    std::string key, option, value;  // the key "factor" stands for the option "loss_factor"
  };
  std::string output;
  std::vector<Setting> settings;  // one of them is the option loss
};

// Parses an output that is followed by keys with values. Returns an empty optional if the output or a value is empty,
// if a key is unknown or repeated, or if the key `loss` is missing. Checks nothing else about the values.
std::optional<AlsoLoss> parse_also_loss(const std::string &text);

}  // namespace protrain::draft
