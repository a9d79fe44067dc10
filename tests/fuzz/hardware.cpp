// Descriptions of machines: what is accepted says the same once it is written and read again, and a step can be
// predicted on it.
#include "fuzz/answer.h"
#include "fuzz/drawn.h"

using namespace protrain;

namespace {

plan::Terms terms_of(const session::Blueprint &blueprint, const profile::Profile &machine) {
  plan::Terms terms{.shared_memory = machine.shares_memory,
                    .capacity = {machine.usable_device(), machine.usable_host(), machine.disk_memory}};
  for (const graph::ValueId gradient : blueprint.first().training.gradients)
    terms.trained.push_back(gradient != graph::ValueId::none);
  return terms;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  static const fuzz::Drawn drawn = fuzz::draw_layers(3, "rtx3090");
  profile::Profile machine;
  const std::string text(fuzz::text_of(data, size));
  if (fuzz::answer([&] { machine = profile::from_json(text); })) return 0;
  fuzz::expect(profile::from_json(profile::to_json(machine)) == machine, "another machine once it was written");
  fuzz::answer([&] {
    const plan::Clock clock(machine, drawn.graph(), {});
    const program::Simulation step = session::predict(drawn.blueprint.draft.programs[0], clock).step;
    fuzz::expect(step.step_ns >= 0, "a step that ends before it begins");
    plan::search(drawn.graph(), clock, terms_of(drawn.blueprint, machine), [&](const plan::Plan &) {
      return plan::LaidOut{.bytes = drawn.blueprint.draft.bytes, .seconds = static_cast<double>(step.step_ns) * 1e-9};
    });
  });
  return 0;
}
