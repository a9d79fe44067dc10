#include "session/refusal.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"

namespace protrain::session {

namespace {

constexpr int kHalvings = 6;

// The same machine for another graph, with no time spent on measuring.
class Again final : public Site {
 public:
  Again(Site &site, const profile::Profile &profile) : site_(site), profile_(profile) {}
  profile::Profile profile(const std::vector<const graph::Graph *> &, const backend::Optimizer &) override {
    return profile_;
  }
  program::Workspace workspace(const graph::Graph &graph) override { return site_.workspace(graph); }

 private:
  Site &site_;
  const profile::Profile &profile_;
};

std::string key_of(Tier tier, const Budget &budget) {
  if (tier == Tier::device) return budget.shared_memory ? "memory" : "device_memory";
  return tier == Tier::host ? "host_memory" : "disk_memory";
}

bool fits(const Options &options, const onnx_import::Source &source, Site &site) {
  try {
    return sketch(options, source, site).chosen.found.best.has_value();
  } catch (const Error &error) {  // shapes that the model cannot have
    if (error.code == Code::nomem) throw;
    return false;
  }
}

// `binding`: "batch=8". The largest half, quarter, ... of a dimension with which something fits; none: empty.
std::string smaller(const Options &options, const onnx_import::Source &source, Site &site, const std::string &binding) {
  const std::size_t equals = binding.rfind('=');
  std::int64_t value = parse_integer(binding.substr(equals + 1)).value_or(1);
  for (int i = 0; i < kHalvings && value > 1; ++i) {
    value /= 2;
    Options changed = options;
    changed.clear("dim");
    const std::string wanted = fmt::format("{}={}", binding.substr(0, equals), value);
    for (const std::string &other : options.list("dim")) changed.set("dim", other == binding ? wanted : other);
    if (fits(changed, source, site)) return wanted;
  }
  return "";
}

}  // namespace

std::vector<Change> changes_that_fit(const Options &options, const onnx_import::Source &source, Site &site,
                                     const Blueprint &blueprint) {
  std::vector<Change> changes;
  const plan::Smallest &smallest = *blueprint.chosen.smallest;
  const plan::Bytes &needed = smallest.point.laid_out.bytes;
  Change more;
  for (std::size_t t = 0; t < kTierCount; ++t) {
    if (needed[t] <= blueprint.budget.bytes[t]) continue;
    const std::string key = key_of(static_cast<Tier>(t), blueprint.budget);
    if (!more.text.empty()) more.text += " and ";
    more.text += fmt::format("{}={} ({})", key, needed[t], bytes_text(needed[t]));
    more.options.emplace_back(key, std::to_string(needed[t]));
  }
  changes.push_back(more);
  if (blueprint.chosen.with_disk && (*blueprint.chosen.with_disk)[2] > 0) {
    const plan::Bytes &with = *blueprint.chosen.with_disk;
    const bool on_paper = options.is_set("hardware");
    const std::string key = on_paper ? "disk_memory" : "offload_dir";
    const std::string disk = fmt::format("{} ({})", with[2], bytes_text(with[2]));
    Change with_disk = on_paper ? Change{{{key, std::to_string(with[2])}}, fmt::format("{}={}", key, disk)}
                                : Change{{{key, "DIR"}}, fmt::format("{} with {} of disk", key, disk)};
    for (Tier tier : {Tier::device, Tier::host}) {
      const std::uint64_t bytes = with[static_cast<std::size_t>(tier)];
      if (bytes <= blueprint.budget.bytes[static_cast<std::size_t>(tier)]) continue;
      with_disk.text += fmt::format(" and {}={} ({})", key_of(tier, blueprint.budget), bytes, bytes_text(bytes));
      with_disk.options.emplace_back(key_of(tier, blueprint.budget), std::to_string(bytes));
    }
    changes.push_back(with_disk);
  }
  Again again(site, blueprint.profile);
  for (const std::string &binding : options.list("dim"))
    if (const std::string value = smaller(options, source, again, binding); !value.empty())
      changes.push_back(
          {{{"dim", value}}, fmt::format("{} instead of {}", value, binding.substr(binding.rfind('=') + 1))});
  return changes;
}

Blueprint sketch_again(const Options &options, const onnx_import::Source &source, Site &site,
                       const profile::Profile &profile) {
  Again again(site, profile);
  return sketch(options, source, again);
}

void refuse(const Options &options, const onnx_import::Source &source, Site &site, const Blueprint &blueprint) {
  const Tier tier = *blueprint.chosen.smallest->lacks;
  const auto lacking = static_cast<std::size_t>(tier);
  const std::uint64_t needed = blueprint.chosen.smallest->point.laid_out.bytes[lacking];
  const std::string key = key_of(tier, blueprint.budget);
  std::vector<std::string> texts;
  for (const Change &change : changes_that_fit(options, source, site, blueprint)) texts.push_back(change.text);
  fail(Code::budget, key,
       "no plan fits: the smallest needs {} bytes ({}) of {}, and there are {} ({}); what would fit: {}", needed,
       bytes_text(needed), key, blueprint.budget.bytes[lacking], bytes_text(blueprint.budget.bytes[lacking]),
       fmt::join(texts, "; or "));
}

}  // namespace protrain::session
