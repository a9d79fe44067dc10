#include "draft/refusal.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"
#include "draft/binding.h"
#include "draft/estimate.h"

namespace protrain::draft {

namespace {

constexpr int kHalvings = 6;

std::string key_of(Tier tier, const Budget &budget) {
  if (tier == Tier::device) return budget.shared_memory ? "memory" : "device_memory";
  return tier == Tier::host ? "host_memory" : "disk_memory";
}

bool fits(const Settings &settings, const onnx_import::ModelSource &source, TargetMachine &machine) {
  try {
    return estimate(settings, source, machine, IfNothingFits::stop).fits();
  } catch (const Error &error) {  // the model cannot have these shapes
    if (error.code == Code::nomem) throw;
    return false;
  }
}

// Halves the dimension until some plan fits, at most kHalvings times. Returns nothing if none fits.
std::optional<Binding> smaller(const Settings &settings, const onnx_import::ModelSource &source, TargetMachine &machine,
                               Binding binding) {
  Settings changed = settings;
  for (int i = 0; i < kHalvings && binding.size > 1; ++i) {
    changed.dims[binding.name] = binding.size /= 2;
    if (fits(changed, source, machine)) return binding;
  }
  return std::nullopt;
}

// Returns the change that raises the budgets to what the smallest plan, or the plan from a file, needs.
Change more_memory(const Draft &draft) {
  const plan::Bytes needed = draft.decision.smallest ? draft.decision.smallest->point.cost.bytes : draft.programs.bytes;
  Change more;
  for (const Tier t : kTiers) {
    if (needed[t] <= draft.budget.bytes[t]) continue;
    const std::string key = key_of(t, draft.budget);
    if (!more.text.empty()) more.text += " and ";
    more.text += fmt::format("{}={} ({})", key, needed[t], bytes_text(needed[t]));
    more.options.emplace_back(key, std::to_string(needed[t]));
  }
  return more;
}

// Returns the change that adds a disk of with[Tier::disk] bytes, and raises the budgets that are still too small then.
Change with_disk(const plan::Bytes &with, const Draft &draft) {
  const std::string disk = fmt::format("{} ({})", with[Tier::disk], bytes_text(with[Tier::disk]));
  Change change =
      draft.settings.hardware.empty()
          ? Change{{{"offload_dir", "DIR"}}, fmt::format("offload_dir with {} of disk", disk)}
          : Change{{{"disk_memory", std::to_string(with[Tier::disk])}}, fmt::format("disk_memory={}", disk)};
  for (Tier tier : {Tier::device, Tier::host}) {
    const std::uint64_t bytes = with[tier];
    if (bytes <= draft.budget.bytes[tier]) continue;
    change.text += fmt::format(" and {}={} ({})", key_of(tier, draft.budget), bytes, bytes_text(bytes));
    change.options.emplace_back(key_of(tier, draft.budget), std::to_string(bytes));
  }
  return change;
}

}  // namespace

std::vector<Change> changes_that_fit(const Settings &settings, const onnx_import::ModelSource &source,
                                     TargetMachine &machine, const Draft &draft) {
  std::vector<Change> changes = {more_memory(draft)};
  const auto &disk = draft.decision.with_disk;
  if (disk && (*disk)[Tier::disk] > 0) changes.push_back(with_disk(*disk, draft));
  ProfiledMachine profiled(machine, draft.profile);
  for (const auto &[name, size] : settings.dims)
    if (const std::optional<Binding> less = smaller(settings, source, profiled, {name, size}))
      changes.push_back({{{"dim", less->text()}}, fmt::format("{} instead of {}", less->text(), size)});
  return changes;
}

void refuse(const Settings &settings, const onnx_import::ModelSource &source, TargetMachine &machine,
            const Draft &draft) {
  const Tier tier = *draft.decision.smallest->lacks;
  const std::uint64_t needed = draft.decision.smallest->point.cost.bytes[tier];
  const std::string key = key_of(tier, draft.budget);
  std::vector<std::string> texts;
  for (const Change &change : changes_that_fit(settings, source, machine, draft)) texts.push_back(change.text);
  fail(Code::budget, key,
       "no plan fits: the smallest needs {} bytes ({}) of {}, and there are {} ({}); what would fit: {}", needed,
       bytes_text(needed), key, draft.budget.bytes[tier], bytes_text(draft.budget.bytes[tier]),
       fmt::join(texts, "; or "));
}

}  // namespace protrain::draft
