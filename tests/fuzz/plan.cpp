// Plans: what is accepted says the same once it is written and read again, and gives Programs that are proven.
#include "plan/plan.h"
#include "fuzz/answer.h"
#include "fuzz/drawn.h"

using namespace protrain;

namespace {

// All that a plan is lowered with, made once: five layers, with AdamW.
struct Ground {
  fuzz::Drawn drawn = fuzz::draw_layers(5, "rtx3090");
  session::Drafter drafter{
      drawn.blueprint.served,
      *drawn.site,
      {.optimizer = program::optimizer_arrays(DType::f32, 2), .accumulates = false, .kept = drawn.blueprint.kept}};
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  static const Ground ground;
  const std::string text(fuzz::text_of(data, size));
  const graph::Graph &graph = ground.drawn.graph();
  plan::Plan plan;
  if (fuzz::answer([&] { plan = plan::from_json(text, graph, {}); })) return 0;
  fuzz::expect(plan::from_json(plan::to_json(plan), graph, {}) == plan, "another plan once it was written");
  fuzz::answer([&] { ground.drafter.lower(plan); });
  return 0;
}
