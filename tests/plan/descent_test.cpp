// Descents through plans whose costs are made up, so that it is known which steps help.
#include "plan/descent.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "plan/layers.h"

namespace protrain::plan::descent_test {
namespace {

constexpr int kLayers = 12;

// Plans of a model of equal layers, and a descent through them.
class MadeUp {
 public:
  MadeUp(std::function<double(const Plan &)> seconds, std::function<std::uint64_t(const Plan &)> bytes)
      : durations_(machine_, layers_.graph, layers_.terms.optimizer),
        outline_(layers_.graph, durations_),
        space_(space_of(layers_.graph, outline_, durations_, layers_.terms)),
        lay_out_([=](const Plan &plan) {
          return PlanCost{.bytes = {bytes(plan), 0, 0}, .seconds = seconds(plan), .instructions = 1};
        }),
        trials_(layers_.graph, lay_out_) {}

  // Descends from `start` in as much device memory as `start` takes. Returns the fastest plan that fits.
  Trial descended_from(Choice start, std::size_t most = 10'000) {
    start.chunk_bytes = space_.chunk_bytes.front();  // a chunk for each layer
    start.n_host = kLayers;
    start.n_device_update = -1;
    const Trial &first = trials_.add({start, {}});
    layers_.terms.capacity = first.cost.bytes;
    Descent(layers_.graph, space_, layers_.terms, trials_, most).from(start);
    const Trial *best = &first;
    for (const Trial &trial : trials_.all())
      if (fits(trial.cost.bytes, layers_.terms.capacity) && trial.cost.seconds < best->cost.seconds) best = &trial;
    return *best;
  }
  std::size_t instructions() const { return trials_.instructions(); }

 private:
  Layers layers_{kLayers};
  const profile::Profile machine_ = layers_.machine();
  const Durations durations_;
  const Outline outline_;
  const Space space_;
  const LayOut lay_out_;
  Trials trials_;
};

TEST(Descent, TakesStepsThatHelpUntilNoneDoes) {
  MadeUp made_up([](const Plan &plan) { return 10.0 + std::abs(plan.n_buffer - 10); },
                 [](const Plan &) { return 100; });
  EXPECT_EQ(made_up.descended_from({.n_buffer = 2}).candidate.choice.n_buffer, 10);
}

TEST(Descent, EndsAfterTheInstructionsThatItMayLayOut) {
  MadeUp made_up([](const Plan &plan) { return 10.0 - plan.n_buffer; }, [](const Plan &) { return 100; });
  made_up.descended_from({.n_buffer = 1}, 4);
  EXPECT_EQ(made_up.instructions(), 4u);
}

}  // namespace
}  // namespace protrain::plan::descent_test
