// How far from the best of its whole space is the plan that the search chooses? Lays out and simulates every point.
//   bench_search MODEL.onnx HARDWARE BUDGET... [key=value...]
// BUDGET: device memory (or, where device and host share it, memory); key=value: options of a session. One JSON line a
// budget.
#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "session/blueprint.h"
#include "session/loaded_model.h"
#include "session/refusal.h"

namespace {

using namespace protrain;
using Json = nlohmann::ordered_json;

struct Laid {
  plan::Choice choice;
  plan::LaidOut out;
};

// Every point but n_host, which is the most that the host holds.
std::vector<plan::Choice> points(const graph::Graph &graph, const plan::Clock &clock, const plan::Terms &terms) {
  const plan::Outline outline(graph, clock);
  const plan::Space space = plan::space_of(graph, outline, clock, terms);
  std::vector<plan::Choice> all;
  for (std::uint64_t chunk_bytes : space.chunk_bytes) {
    const plan::Chunking chunking(graph, outline, clock, terms, chunk_bytes);
    const auto n = static_cast<int>(chunking.chunks.size());
    for (Tier update : space.updates)
      for (plan::OptimizerOrder order : space.orders)
        for (int swap = 0; swap <= space.most_swap; ++swap)
          for (int again = 0; swap + again <= space.blocks; ++again)
            for (int persist = 0; persist <= n; ++persist)
              for (int buffer = persist == n ? 0 : 1; buffer <= n - persist; ++buffer) {
                plan::Choice choice = plan::with_terms({.n_persist = persist,
                                                        .n_buffer = buffer,
                                                        .n_swap = swap,
                                                        .n_checkpoint = again,
                                                        .update = update,
                                                        .chunk_bytes = chunk_bytes,
                                                        .order = order},
                                                       terms);
                choice.n_host = terms.shared_memory ? 0 : n - persist;
                all.push_back(choice);
              }
  }
  return all;
}

Json to_json(const Laid &laid) {
  const plan::Choice &c = laid.choice;
  return {{"n_persist", c.n_persist},
          {"n_buffer", c.n_buffer},
          {"n_swap", c.n_swap},
          {"n_checkpoint", c.n_checkpoint},
          {"chunk_bytes", c.chunk_bytes},
          {"update", kTierNames[static_cast<int>(c.update)]},
          {"barrier", c.order == plan::OptimizerOrder::barrier},
          {"seconds", laid.out.seconds},
          {"device_bytes", laid.out.bytes[0]}};
}

int measure_search(int argc, char **argv) {
  session::Options options;
  std::vector<std::uint64_t> budgets;
  for (int i = 3; i < argc; ++i) {
    const std::string text = argv[i];
    if (const std::size_t equals = text.find('='); equals != std::string::npos)
      options.set(text.substr(0, equals), text.substr(equals + 1));
    else
      budgets.push_back(parse_bytes(text).value());
  }
  options.set("hardware", argv[2]);
  session::PaperSite site(session::described_machine(argv[2]));
  const session::Blueprint drawn = session::sketch(options, argv[1], site);
  const session::Served &served = drawn.first();
  program::StateRequest request = {.optimizer = program::optimizer_arrays(session::precision_of(options), 2),
                                   .kept = drawn.kept};
  const session::Drafter drafter(drawn.served, site, request);
  plan::OptimizerBytes optimizer{.state = 0};
  for (const auto &array : request.optimizer) optimizer.state += array.element_bytes;
  const plan::Clock clock(drawn.profile, served.training.graph, optimizer);
  plan::Terms terms{.shared_memory = drawn.budget.shared_memory,
                    .barrier_only = options.is_set("clip_norm"),
                    .optimizer = optimizer,
                    .capacity = drawn.budget.bytes};
  for (graph::ValueId gradient : served.training.gradients) terms.trained.push_back(gradient != graph::ValueId::none);
  const plan::LayOut lay_out = [&](const plan::Plan &plan) {
    const session::Draft draft = drafter.lower_training(plan);
    return plan::LaidOut{draft.bytes, session::predict(draft.programs[0], clock).seconds(1),
                         draft.programs[0].step.instructions.size()};
  };

  const std::vector<plan::Choice> all = points(served.training.graph, clock, terms);
  std::vector<Laid> laid(all.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < all.size(); i = next++)
      laid[i] = {all[i], lay_out(plan::expand(served.training.graph, all[i]))};
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::thread::hardware_concurrency(); ++t) threads.emplace_back(work);
  for (std::thread &thread : threads) thread.join();

  for (std::uint64_t budget : budgets) {
    terms.capacity[0] = budget;
    const Laid *best = nullptr;
    std::size_t fitting = 0;
    for (const Laid &one : laid) {
      bool fits = true;
      for (std::size_t t = 0; t < kTierCount; ++t) fits = fits && one.out.bytes[t] <= terms.capacity[t];
      if (!fits) continue;
      ++fitting;
      if (best == nullptr || one.out.seconds < best->out.seconds) best = &one;
    }
    const plan::Found found = plan::search(served.training.graph, clock, terms, lay_out);
    Json line = {{"model", argv[1]},      {"hardware", argv[2]}, {"budget", budget},
                 {"points", laid.size()}, {"fitting", fitting},  {"laid_out", found.laid_out}};
    const plan::Outline outline(served.training.graph, clock);
    const auto add = [&](const char *key, const Laid &laid) {
      const plan::Choice &c = laid.choice;
      const plan::Chunking chunking(served.training.graph, outline, clock, terms, c.chunk_bytes);
      const plan::Estimate estimate =
          plan::CostModel(chunking, c)
              .estimate(static_cast<std::size_t>(c.n_persist), static_cast<std::size_t>(c.n_host),
                        static_cast<std::size_t>(c.n_buffer));
      line[key] = to_json(laid);
      line[key]["ranked_seconds"] = estimate.seconds;
      line[key]["ranked_device_bytes"] = estimate.bytes[0];
    };
    if (best != nullptr) add("best", *best);
    if (found.best) add("chosen", {found.best->choice, found.best->laid_out});
    if (best != nullptr && found.best) line["ratio"] = found.best->laid_out.seconds / best->out.seconds;
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: bench_search MODEL.onnx HARDWARE BUDGET... [key=value...]\n");
    return 2;
  }
  try {
    return measure_search(argc, argv);
  } catch (const protrain::Error &error) {
    fmt::print(stderr, "bench_search: {}: {}\n", error.subject, error.text);
    return 1;
  }
}
