// The file adapter_config.json, in which Hugging Face's PEFT says what the matrices of an adapter mean.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "passes/adapter.h"

namespace protrain::draft {

class PeftConfig {
 public:
  // Reads the file. Throws Code::io, path or format. Throws Code::unsupported if the adapter is more than W + sBA, the
  // weights plus a scaled product of the matrices B and A.
  explicit PeftConfig(const std::string &path);

  // Sets alpha, scaling and dropout of a module's request to the values that the file has for the module. The request
  // already has its rank, from the module's matrices. Throws Code::format if the file gives the module another rank, or
  // invalid values. Throws Code::unsupported for a regular expression in alpha_pattern.
  void complete(passes::AdapterRequest &request) const;

 private:
  void require_plain() const;
  double number(const char *key, double fallback) const;
  bool flag(const char *key) const;
  std::span<const Json::Member> patterns(const char *key) const;
  double alpha_of(const std::string &module) const;
  bool allows_rank(const std::string &module, double rank) const;

  std::string path_;
  Json json_;
};

// Returns the text of adapter_config.json for these adapters. The text gives the rank and the alpha that most modules
// have. It names each module with another rank or alpha.
std::string peft_config_of(const std::vector<passes::Adapter> &adapters);

}  // namespace protrain::draft
