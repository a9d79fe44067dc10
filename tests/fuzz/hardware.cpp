// Fuzzes hardware descriptions. An accepted description must be unchanged after it is written and read again, and the
// planner must be able to predict a step on it.
#include "fuzz/answer.h"
#include "fuzz/draft.h"

using namespace protrain;

namespace {

plan::Terms terms_of(const draft::Draft &draft, const profile::Profile &machine) {
  plan::Terms terms{.shared_memory = machine.shares_memory,
                    .capacity = {machine.usable_device(), machine.usable_host(), machine.disk_memory}};
  for (const graph::ValueId gradient : draft.first().training.gradients)
    terms.trained.push_back(gradient != graph::ValueId::none);
  return terms;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  static const fuzz::PaperDraft paper = fuzz::draft_of_layers(3, "rtx3090");
  profile::Profile machine;
  const std::string text(fuzz::text_of(data, size));
  if (fuzz::answer([&] { machine = profile::from_json(text); })) return 0;
  fuzz::expect(profile::from_json(profile::to_json(machine)) == machine, "another machine once it was written");
  fuzz::answer([&] {
    const plan::Durations durations(machine, paper.graph(), {});
    const program::Simulation step = draft::simulate_step(paper.draft.programs.variants[0], durations).step;
    fuzz::expect(step.step_ns >= 0, "a step that ends before it begins");
    plan::search(paper.graph(), durations, terms_of(paper.draft, machine), [&](const plan::Plan &) {
      return plan::PlanCost{.bytes = paper.draft.programs.bytes, .seconds = static_cast<double>(step.step_ns) * 1e-9};
    });
  });
  return 0;
}
