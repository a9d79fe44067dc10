#include "draft/refusal.h"

#include <fmt/ranges.h>

#include <initializer_list>

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
    return estimate(settings, source, machine, Goal::any).fits();
  } catch (const Error &error) {  // the model cannot have these shapes
    if (error.code == Code::nomem) throw;
    return false;
  }
}

// Halves the dimension until some plan fits, at most kHalvings times. Returns the dimension with the size that fits, or
// an empty optional if no plan fits.
std::optional<Binding> smaller(const Settings &settings, const onnx_import::ModelSource &source, TargetMachine &machine,
                               Binding binding) {
  Settings changed = settings;
  for (int i = 0; i < kHalvings && binding.size > 1; ++i) {
    changed.dims[binding.name] = binding.size /= 2;
    if (fits(changed, source, machine)) return binding;
  }
  return std::nullopt;
}

// Returns the name and the value of the option that gives a tier `bytes` bytes. But for the disk of the machine at
// hand, returns offload_dir if no directory is set, because a budget for the disk has no effect without a directory.
std::pair<std::string, std::string> option_for(Tier tier, std::uint64_t bytes, const Draft &draft) {
  const Settings &settings = draft.settings;
  if (tier == Tier::disk && settings.hardware.empty() && settings.offload_dir.empty()) return {"offload_dir", "DIR"};
  return {key_of(tier, draft.budget), std::to_string(bytes)};
}

// Returns the change of options that raises the budget of each tier in `tiers` to the bytes in `needed`, if the budget
// is smaller.
Change raised(const plan::Bytes &needed, std::initializer_list<Tier> tiers, const Draft &draft) {
  Change change;
  for (const Tier t : tiers) {
    if (needed[t] <= draft.budget.bytes[t]) continue;
    const auto [key, value] = option_for(t, needed[t], draft);
    if (!change.text.empty()) change.text += " and ";
    change.text += key == "offload_dir" ? fmt::format("{} with {} ({}) of disk", key, needed[t], bytes_text(needed[t]))
                                        : fmt::format("{}={} ({})", key, value, bytes_text(needed[t]));
    change.options.emplace_back(key, value);
  }
  return change;
}

}  // namespace

std::vector<Change> changes_that_fit(const Settings &settings, const onnx_import::ModelSource &source,
                                     TargetMachine &machine, const Draft &draft) {
  // The bytes of the smallest plan. If the plan was read from a file, these are the bytes of that plan.
  const plan::Bytes needed = draft.decision.smallest ? draft.decision.smallest->point.cost.bytes : draft.programs.bytes;
  const auto had = [&](const plan::Bytes &bytes) { return machine_has(bytes, settings, draft.profile); };
  std::vector<Change> changes;
  if (had(needed)) changes.push_back(raised(needed, {Tier::device, Tier::host, Tier::disk}, draft));
  const auto &disk = draft.decision.with_disk;
  if (disk && (*disk)[Tier::disk] > 0 && had(*disk))
    changes.push_back(raised(*disk, {Tier::disk, Tier::device, Tier::host}, draft));
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
       texts.empty() ? "no single option" : fmt::format("{}", fmt::join(texts, "; or ")));
}

}  // namespace protrain::draft
