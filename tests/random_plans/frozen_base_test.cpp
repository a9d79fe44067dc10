// A frozen base on the disk is only read. To show this, the test opens the session's file on the disk again, for
// reading alone, before the adapters train. Any write would then fail.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "asked.h"
#include "base/error.h"
#include "draft/loaded_model.h"
#include "errors.h"
#include "grad/training.h"
#include "random_plan.h"

namespace protrain::test::frozen_base_test {
namespace {

constexpr int kSteps = 3;
const std::string kModel = "gpt2-dynamic-opset18";

Pairs options(const Pairs &more = {}) {
  Pairs pairs = base_options(kModel);
  pairs.insert(pairs.end(), {{"lora", "*.c_*.weight"}, {"lora_rank", "4"}});
  pairs.insert(pairs.end(), more.begin(), more.end());
  return pairs;
}

graph::Graph training_graph(const Pairs &pairs) {
  draft::LoadedModel loaded = draft::load_model(draft::settings_of(options_with(pairs)), fixture(kModel + ".onnx"));
  return grad::build(std::move(loaded.prepared.graph), loaded.loss).graph;
}

bool is_frozen(const graph::Graph &graph, const plan::Chunk &chunk) {
  return graph.value(graph.parameters[chunk.parameters.at(0)]).frozen;
}

// Draws plans until one has frozen chunks on the disk. Nothing else may lie there, so other chunks move to the host. If
// device and host share their memory, activations are swapped to the disk, so a plan with swaps is not taken.
plan::Plan draw_plan(Draw &draw, const graph::Graph &graph) {
  for (;;) {
    plan::Plan plan = draw.plan(graph);
    int on_disk = 0;
    for (plan::Chunk &chunk : plan.chunks) {
      if (is_frozen(graph, chunk) && chunk.tier == Tier::host && draw.chance(0.5)) chunk.tier = Tier::disk;
      if (!is_frozen(graph, chunk) && chunk.tier == Tier::disk) chunk.tier = Tier::host;
      on_disk += chunk.tier == Tier::disk;
    }
    if (on_disk > 0 && !(plan.shared_memory && plan.n_swap > 0)) return plan;
  }
}

// Opens the session's file on the disk for reading alone, and puts the new descriptor in place of the old one. The file
// lies in `directory` and has no name.
void seal(const std::string &directory) {
  int sealed = 0;
  for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string file = std::filesystem::read_symlink(entry.path(), gone).string();
    if (gone || !file.starts_with(directory + "/")) continue;
    const int descriptor = std::stoi(entry.path().filename().string());
    const int flags = fcntl(descriptor, F_GETFL);
    const int reader = open(entry.path().c_str(), O_RDONLY | (flags & O_DIRECT) | O_CLOEXEC);
    ASSERT_GE(reader, 0) << file;
    ASSERT_EQ(dup2(reader, descriptor), descriptor);
    close(reader);
    ++sealed;
  }
  ASSERT_EQ(sealed, 1);
}

Trace run(const Pairs &pairs, const plan::Plan *plan = nullptr) {
  const Scratch scratch;
  Pairs all = pairs;
  if (plan != nullptr)
    for (const auto &pair : following(*plan, scratch)) all.push_back(pair);
  const auto session = session::Session::create(options_with(all), fixture(kModel + ".onnx"), nullptr);
  if (plan != nullptr) seal(scratch.path());
  return train(*session, kSteps);
}

TEST(FrozenBase, IsOnlyReadUnderRandomPlans) {
  Draw draw(25);
  for (const char *precision : {"fp32", "bf16"}) {
    const Pairs pairs = options({{"precision", precision}});
    const graph::Graph graph = training_graph(pairs);
    const Trace expected = run(pairs);
    for (std::uint64_t i = 0; i < asked_plans() / 2 + 2; ++i) {
      const plan::Plan plan = draw_plan(draw, graph);
      try {
        ASSERT_TRUE(run(pairs, &plan) == expected) << "plan " << i << ": " << plan::to_json(plan);
      } catch (const Error &error) {
        FAIL() << error.text << " (" << error.subject << ") plan " << i << ": " << plan::to_json(plan);
      }
    }
  }
}

TEST(FrozenBase, IsNotAllThatRestsOnADiskWithAdapters) {
  const Pairs pairs = options();
  plan::Plan plan = plan::resident(training_graph(pairs));
  for (plan::Chunk &chunk : plan.chunks) chunk.tier = Tier::disk;
  plan.n_persist = 0;
  plan.n_buffer = static_cast<int>(plan.chunks.size());
  EXPECT_EQ(error_of([&] { run(pairs, &plan); }).code, Code::io);
}

TEST(FrozenBase, SharesNoChunkWithWhatIsTrained) {
  const graph::Graph graph = training_graph(options());
  plan::Plan plan = plan::resident(graph);
  for (const plan::Chunk &chunk : plan.chunks)
    for (const std::size_t p : chunk.parameters)
      EXPECT_EQ(graph.value(graph.parameters[p]).frozen, is_frozen(graph, chunk));
  plan.chunks[0].parameters.insert(plan.chunks[0].parameters.end(), plan.chunks[1].parameters.begin(),
                                   plan.chunks[1].parameters.end());
  plan.chunks.erase(plan.chunks.begin() + 1);
  const Error error = error_of([&] { plan::check(plan, graph); });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_NE(error.text.find("frozen ones need chunks of their own"), std::string::npos) << error.text;
}

}  // namespace
}  // namespace protrain::test::frozen_base_test
