#include "state/difference.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace protrain::state {

namespace {

constexpr std::size_t kShown = 5;

// Returns a text with the first kShown differences and the number of the remaining ones.
std::string first_of(const std::vector<std::string> &differences) {
  const std::size_t shown = std::min(differences.size(), kShown);
  std::string text = fmt::format("{}", fmt::join(differences.begin(), differences.begin() + shown, "; "));
  if (shown < differences.size()) text += fmt::format("; and {} more", differences.size() - shown);
  return text;
}

std::string listed(const std::vector<SavedArray> &arrays) {
  std::vector<std::string> names;
  for (const SavedArray &array : arrays) names.push_back(array.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// Appends the difference between a saved and a wanted parameter, if there is one. Compares the optimizer's arrays only
// if the shapes and the optimizer are the same. Otherwise the arrays mostly differ as well, and this difference would
// tell nothing new.
void compare_parameter(const Parameter &saved, const Parameter &wanted, bool same_optimizer,
                       std::vector<std::string> &differences) {
  if (saved.shape != wanted.shape)
    differences.push_back(
        fmt::format("{} has shape {} there and {} here", wanted.name, to_text(saved.shape), to_text(wanted.shape)));
  else if (same_optimizer && saved.arrays != wanted.arrays)
    differences.push_back(fmt::format("the optimizer keeps [{}] of {} there and [{}] here", listed(saved.arrays),
                                      wanted.name, listed(wanted.arrays)));
}

}  // namespace

ByName index_of(const std::vector<Parameter> &parameters) {
  ByName by_name;
  for (std::size_t p = 0; p < parameters.size(); ++p) by_name[parameters[p].name] = p;
  return by_name;
}

void require_same(const std::string &path, const Description &saved, const Description &wanted) {
  std::vector<std::string> differences;
  const bool same_optimizer = saved.optimizer == wanted.optimizer;
  if (!same_optimizer)
    differences.push_back(fmt::format("the optimizer is {} there and {} here", saved.optimizer, wanted.optimizer));
  const ByName there = index_of(saved.parameters), here = index_of(wanted.parameters);
  for (const Parameter &parameter : wanted.parameters) {
    const auto found = there.find(parameter.name);
    if (found == there.end())
      differences.push_back(fmt::format("{} is missing there", parameter.name));
    else
      compare_parameter(saved.parameters[found->second], parameter, same_optimizer, differences);
  }
  for (const Parameter &parameter : saved.parameters)
    if (!here.contains(parameter.name)) differences.push_back(fmt::format("{} is there only", parameter.name));
  require(differences.empty(), Code::mismatch, path,
          "a checkpoint of something else: {}; resume with the model and the options that it was saved with",
          first_of(differences));
}

}  // namespace protrain::state
