// Fuzzes plans. An accepted plan must be unchanged after it is written and read again, and must lower to Programs that
// pass verify().
#include "plan/plan.h"
#include "fuzz/answer.h"
#include "fuzz/draft.h"
#include "moments.h"

using namespace protrain;

namespace {

// A draft of five layers with AdamW, made once. Every plan is lowered for it.
struct Layers {
  fuzz::PaperDraft paper = fuzz::draft_of_layers(5, "rtx3090");
  draft::PlanLowering lowering{paper.draft.variants,
                               *paper.machine,
                               {.optimizer = program::optimizer_arrays(DType::f32, test::moments(2)),
                                .accumulates = false,
                                .kept = paper.draft.kept}};
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  static const Layers layers;
  const std::string text(fuzz::text_of(data, size));
  const graph::Graph &graph = layers.paper.graph();
  plan::Plan plan;
  if (fuzz::answer([&] { plan = plan::from_json(text, graph, {}); })) return 0;
  fuzz::expect(plan::from_json(plan::to_json(plan), graph, {}) == plan, "another plan once it was written");
  fuzz::answer([&] { layers.lowering.lower(plan); });
  return 0;
}
