// The JSON text of plans, and the expansion of a Choice into a Plan.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "plan/plan.h"

namespace protrain::plan::json_test {
namespace {

using enum BlockMode;

// A graph of blocks with one parameter of 16 elements each.
graph::Graph graph_of(int blocks) {
  graph::Graph graph;
  for (int b = 0; b < blocks; ++b) {
    const graph::ValueId id =
        graph.add_value({.name = "w", .type = {DType::f32, {16}}, .origin = graph::Origin::parameter});
    graph.parameters.push_back(id);
    graph.add_node({.op = "Relu", .inputs = {id}, .outputs = {}, .block = b}, {"y"});
  }
  return graph;
}

Plan random_plan(const graph::Graph &graph, std::mt19937 &random) {
  Plan plan{.n_buffer = static_cast<int>(random() % 5), .shared_memory = random() % 2 == 0};
  plan.order = static_cast<OptimizerOrder>(random() % 2);
  plan.piece_bytes = 4096u << random() % 5;
  plan.slack = static_cast<int>(random() % 4);
  plan.chunks = cut_chunks(graph, 64 << random() % 3);
  for (Chunk &chunk : plan.chunks) {
    chunk.tier = static_cast<Tier>(random() % 3);
    chunk.update = plan.shared_memory ? Tier::device : static_cast<Tier>(random() % 2);
    chunk.deferred = random() % 2 == 0;
    plan.n_persist += chunk.tier == Tier::device;
  }
  for (int b = 0; b < count_blocks(graph); ++b) {
    plan.blocks.push_back(static_cast<BlockMode>(random() % 4));
    plan.n_swap += plan.blocks.back() == swap;
    plan.n_checkpoint += plan.blocks.back() == recompute;
    plan.n_selective += plan.blocks.back() == selective;
  }
  return plan;
}

Error error_of(const std::string &text, int blocks = 3) {
  try {
    from_json(text, graph_of(blocks), {});
  } catch (const Error &error) {
    return error;
  }
  return {Code::ok, "", ""};
}

TEST(PlanText, ComesBackAsThePlanItWasMadeOf) {
  const graph::Graph graph = graph_of(7);
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const Plan plan = random_plan(graph, random);
    // If the text lacks a key, from_json() takes this key from the base. The base is another plan here, so the result
    // equals `plan` only if the text has all keys.
    const Choice other{.n_persist = 2, .n_buffer = 9, .n_swap = 1, .n_device_update = -1, .shared_memory = i % 2 == 0};
    EXPECT_EQ(from_json(to_json(plan), graph, other), plan) << to_json(plan);
  }
}

TEST(PlanText, OfIntegersAloneIsExpanded) {
  const graph::Graph graph = graph_of(6);
  const Plan plan =
      from_json(R"({"n_persist": 2, "n_buffer": 1, "n_swap": 1, "n_checkpoint": 2, "n_selective": 2, "n_host": 3,
                                  "chunk_bytes": 64, "update": "device"})",
                graph, {});
  EXPECT_EQ(plan, expand(graph, {.n_persist = 2,
                                 .n_buffer = 1,
                                 .n_swap = 1,
                                 .n_checkpoint = 2,
                                 .n_selective = 2,
                                 .n_host = 3,
                                 .n_device_update = -1,
                                 .chunk_bytes = 64}));
  EXPECT_EQ(plan.chunks.size(), 6u);
}

TEST(PlanText, SpreadsWhatTheDeviceUpdatesAmongTheOthers) {
  const graph::Graph graph = graph_of(6);
  const auto places = [&](const std::string &more) {
    std::string text;
    for (const Chunk &chunk : from_json(R"({"n_persist": 1, "chunk_bytes": 64)" + more + "}", graph, {}).chunks)
      text += chunk.update == Tier::device ? 'd' : 'h';
    return text;
  };
  EXPECT_EQ(places(""), "dhhhhh");  // the first chunk persists
  EXPECT_EQ(places(R"(, "n_device_update": 1)"), "dhhhhd");
  EXPECT_EQ(places(R"(, "n_device_update": 2)"), "dhhdhd");
  EXPECT_EQ(places(R"(, "n_device_update": 9)"), "dddddd");
}

TEST(PlanText, SpreadsWhatIsDeferredAmongTheHostsUpdates) {
  const graph::Graph graph = graph_of(6);
  const auto later = [&](const std::string &more) {
    std::string text;
    for (const Chunk &chunk : from_json(R"({"n_persist": 1, "chunk_bytes": 64)" + more + "}", graph, {}).chunks)
      text += chunk.deferred ? '+' : '.';
    return text;
  };
  EXPECT_EQ(later(""), "......");
  EXPECT_EQ(later(R"(, "n_deferred": 1)"), ".....+");
  EXPECT_EQ(later(R"(, "n_deferred": 2)"), "...+.+");
  EXPECT_EQ(later(R"(, "n_deferred": 2, "n_device_update": 2)"), "..+.+.");
  EXPECT_EQ(later(R"(, "n_deferred": "all")"), "++++++");
}

TEST(PlanText, TakesSizesInWords) {
  // Each block has 64 bytes. A chunk ends at the first block border where it is at least half full.
  EXPECT_EQ(from_json(R"({"chunk_bytes": "1KiB"})", graph_of(32), {}).chunks.size(), 4u);
}

TEST(PlanText, TakesWhatItLacksFromTheBase) {
  const graph::Graph graph = graph_of(4);
  const Choice base{.n_persist = 1, .n_buffer = 2, .n_swap = 1, .chunk_bytes = 64, .order = OptimizerOrder::barrier};
  EXPECT_EQ(from_json("{}", graph, base), expand(graph, base));
}

TEST(PlanText, ThatIsNoPlanIsRefusedAsMalformed) {
  const char *texts[] = {"",
                         "{",
                         "[]",
                         "7",
                         R"({"n_swap": "two"})",
                         R"({"blocks": ["keep", "keep", "forget"]})",
                         R"({"blocks": 3})",
                         R"({"chunks": [{"parameters": [0, 1, 2]}]})",
                         R"({"chunks": [{"parameters": [0, 1, 2], "tier": "tape"}]})",
                         R"({"chunk_bytes": "much"})",
                         R"({"chunk_bytes": 0})",
                         R"({"chunk_bytes": -1})",
                         R"({"n_swap": 1.5})",
                         R"({"n_swap": -1})",
                         R"({"chunk_bytes": -5})",
                         R"({"chunks": 5})",
                         R"({"chunks": [{"parameters": [0.5, 1, 2], "tier": "host"}]})",
                         R"({"chunks": [5]})",
                         R"({"chunks": [{"parameters": [0, 1, 2], "tier": "host", "updaet": "device"}]})",
                         R"({"blocks": "keep"})",
                         R"({"n_chekpoint": 1})",
                         R"({"n_persist": 4294967297})",
                         R"({"optimizer_order": "random"})",
                         R"({"update": "nowhere"})"};
  for (const char *text : texts) {
    const Error error = error_of(text);
    EXPECT_EQ(error.code, Code::format) << text << ": " << error.text;
    EXPECT_EQ(error.subject, "plan");
  }
}

TEST(PlanText, ThatIsNestedWithoutEndIsRefusedAsMalformed) {
  constexpr std::size_t kDepth = 1'000'000;
  const std::string nested = std::string(kDepth, '[') + std::string(kDepth, ']');
  EXPECT_EQ(error_of(nested).code, Code::format);
  for (const std::string key : {"n_persist", "chunk_bytes", "update", "shared_memory", "blocks", "chunks"})
    EXPECT_EQ(error_of("{\"" + key + "\":" + nested + "}").code, Code::format) << key;
  EXPECT_EQ(error_of(R"({"chunks":[{"tier":"host","parameters":[)" + nested + "]}]}").code, Code::format);
}

TEST(PlanText, ThatDoesNotFitTheModelIsRefusedAsWrong) {
  const char *texts[] = {R"({"blocks": ["keep"]})",
                         R"({"update": "disk"})",
                         R"({"piece_bytes": 1000})",
                         R"({"chunks": [{"parameters": [0, 1], "tier": "host"}]})",
                         R"({"chunks": [{"parameters": [0, 1, 2, 2], "tier": "host"}]})",
                         R"({"chunks": [{"parameters": [0, 1, 3], "tier": "host"}]})",
                         R"({"chunks": [{"parameters": [0, 1, 2], "tier": "host", "update": "disk"}]})",
                         R"({"n_block": 4})",
                         R"({"n_chunk": 4, "chunk_bytes": 64})",
                         R"({"shared_memory": true,
                             "chunks": [{"parameters": [0, 1, 2], "tier": "host", "update": "host"}]})"};
  for (const char *text : texts) {
    const Error error = error_of(text);
    EXPECT_EQ(error.code, Code::arg) << text << ": " << error.text;
    EXPECT_EQ(error.subject, "plan");
  }
}

TEST(PlanText, SaysWhatItsWordsMayBe) {
  EXPECT_EQ(error_of(R"({"chunks": [{"parameters": [0, 1, 2], "tier": "tape"}]})").text,
            "'tape' is no tier; known are device, host, disk");
  EXPECT_EQ(error_of(R"({"blocks": ["keep", 3, "keep"]})").text,
            "3 is no text, and so no mode of a block; known are keep, recompute, swap, selective");
}

TEST(PlanText, OfAnotherModelIsToldSo) {
  EXPECT_EQ(error_of(R"({"chunks": [{"parameters": [0, 1, 3], "tier": "host"}]})").text,
            "the plan has a parameter 3, and the model has 3, counted from 0; give a plan of this model");
}

TEST(PlanText, MayCountChunksAndBlocks) {
  EXPECT_EQ(error_of(R"({"n_chunk": 3, "n_block": 3, "chunk_bytes": 64})").text, "");
  EXPECT_EQ(error_of(R"({"n_block": 4})").text,
            "n_block is 4, and with this plan the model has 3 blocks; correct it, or leave it out");
}

TEST(Expansion, SpreadsSwapsAmongRecomputationsAsThePaperDoes) {
  const Plan plan = expand(graph_of(8), {.n_swap = 2, .n_checkpoint = 4});
  // There are eight blocks. Counted from 1, blocks 1 and 4 swap, and blocks 2, 3, 5 and 6 recompute.
  EXPECT_EQ(plan.blocks, (std::vector<BlockMode>{swap, recompute, recompute, swap, recompute, recompute, keep, keep}));
}

TEST(Expansion, KeepsSelectivelyBeforeItKeepsAll) {
  const Plan plan = expand(graph_of(5), {.n_swap = 1, .n_checkpoint = 1, .n_selective = 2});
  EXPECT_EQ(plan.blocks, (std::vector<BlockMode>{swap, recompute, selective, selective, keep}));
  EXPECT_EQ(plan.n_selective, 2);
}

TEST(Expansion, CutsNumbersBeyondWhatTheModelHas) {
  const Plan plan =
      expand(graph_of(3), {.n_persist = 99, .n_buffer = 99, .n_swap = 2, .n_checkpoint = 99, .n_selective = 99});
  EXPECT_EQ(plan.n_persist, static_cast<int>(plan.chunks.size()));
  EXPECT_EQ(plan.n_buffer, 0);
  EXPECT_EQ(plan.n_swap, 2);
  EXPECT_EQ(plan.n_checkpoint, 1);
  EXPECT_EQ(plan.n_selective, 0);
}

}  // namespace
}  // namespace protrain::plan::json_test
