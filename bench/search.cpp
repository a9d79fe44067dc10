// Compares the plan that the search chooses with the fastest plan of the whole space. To find the fastest plan, it lays
// out and simulates every point of the space. With `grid` it lays out only the points that bench/grid.h finds, because
// some spaces are too large for all points. With `alone` it lays out none: only the search runs, and nothing is
// compared.
//   bench_search MODEL.onnx HARDWARE [grid|alone] BUDGET... [key=value...]
// A BUDGET is device memory, or all memory if device and host share it. Each key=value is an option of a session. The
// program prints one JSON line per budget.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "bench/grid.h"
#include "bench/space.h"

namespace {

using namespace protrain;
using bench::GridPoint;
using Json = nlohmann::ordered_json;

// Returns a point with two costs: that of its laid-out Program, and the estimate of plan::CostModel, a closed form.
Json to_json(const bench::Space &space, const GridPoint &laid) {
  const plan::Choice &c = laid.choice;
  const plan::Outline outline(space.graph(), space.durations());
  const plan::Chunking chunking(space.graph(), outline, space.durations(), space.terms, c.chunk_bytes);
  const double left = static_cast<double>(chunking.chunks.size()) - c.n_persist;
  const double share = c.n_device_update < 0 || left <= 0 ? 1 : c.n_device_update / left;
  const plan::Footprint footprint(chunking, c, share);
  const plan::Estimate ranked = plan::CostModel(plan::Workload(chunking, c), footprint)
                                    .estimate(static_cast<std::size_t>(c.n_persist), static_cast<std::size_t>(c.n_host),
                                              static_cast<std::size_t>(c.n_buffer));
  return {{"n_persist", c.n_persist},
          {"n_buffer", c.n_buffer},
          {"n_swap", c.n_swap},
          {"n_checkpoint", c.n_checkpoint},
          {"n_selective", c.n_selective},
          {"chunk_bytes", c.chunk_bytes},
          {"n_device_update", c.n_device_update},
          {"n_deferred", c.n_deferred},
          {"slack", c.slack},
          {"barrier", c.order == plan::OptimizerOrder::barrier},
          {"seconds", laid.out.seconds},
          {"device_bytes", laid.out.bytes[Tier::device]},
          {"ranked_seconds", ranked.seconds},
          {"ranked_device_bytes", ranked.bytes[Tier::device]}};
}

int measure_search(int argc, char **argv) {
  draft::Options options;
  std::vector<std::uint64_t> budgets;
  bool grid = false, alone = false;
  for (int i = 3; i < argc; ++i) {
    const std::string text = argv[i];
    if (const std::size_t equals = text.find('='); equals != std::string::npos)
      options.set(text.substr(0, equals), text.substr(equals + 1));
    else if (text == "grid")
      grid = true;
    else if (text == "alone")
      alone = true;
    else
      budgets.push_back(parse_bytes(text).value());
  }
  options.set("hardware", argv[2]);
  bench::Space space(draft::settings_of(options), argv[1],
                     std::make_unique<draft::PaperMachine>(draft::described_machine(argv[2])));
  const unsigned threads = std::thread::hardware_concurrency();
  std::vector<GridPoint> laid;
  if (!grid && !alone) laid = space.lay_out(space.points(), threads);
  for (std::uint64_t budget : budgets) {
    plan::Bytes &capacity = space.terms.capacity;
    capacity[Tier::device] = budget;
    if (grid) laid = bench::Grid(space, threads).run();
    const GridPoint *best = fastest(laid, capacity);
    const auto fitting =
        std::ranges::count_if(laid, [&](const GridPoint &one) { return bench::fits(one.out.bytes, capacity); });
    const plan::SearchResult found = space.search();
    Json line = {{"model", argv[1]},      {"hardware", argv[2]}, {"budget", budget},
                 {"points", laid.size()}, {"fitting", fitting},  {"laid_out", found.laid_out}};
    if (best != nullptr) line["best"] = to_json(space, *best);
    if (found.best) line["chosen"] = to_json(space, {found.best->choice, found.best->cost});
    if (best != nullptr && found.best) line["ratio"] = found.best->cost.seconds / best->out.seconds;
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: bench_search MODEL.onnx HARDWARE [grid|alone] BUDGET... [key=value...]\n");
    return 2;
  }
  try {
    return measure_search(argc, argv);
  } catch (const protrain::Error &error) {
    fmt::print(stderr, "bench_search: {}: {}\n", error.subject, error.text);
    return 1;
  }
}
