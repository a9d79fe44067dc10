// Plans as JSON: written in full, read in full or as the integers that expand() takes.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "plan/plan.h"

namespace protrain::plan {

namespace {

constexpr std::size_t kDeepest = 16;
using Json = nlohmann::ordered_json;

constexpr const char *kModeNames[] = {"keep", "recompute", "swap", "selective"};
constexpr const char *kOrderNames[] = {"overlap", "barrier"};

template <typename Enum, std::size_t N>
Enum named(const Json &json, const char *const (&names)[N], const char *what) {
  const std::string name = json.get<std::string>();
  const auto found = std::find(std::begin(names), std::end(names), name);
  require(found != std::end(names), Code::format, "plan", "'{}' is no {}", printable(name), what);
  return static_cast<Enum>(found - std::begin(names));
}

// As it was written: no fraction is cut off, no large number wraps around.
int integer(const Json &json, const char *key, int fallback) {
  if (!json.contains(key)) return fallback;
  const Json &item = json[key];
  const bool fits = item.is_number_integer() && item == item.get<int>() && item.get<int>() >= 0;
  require(fits, Code::format, "plan", "{} {} is no whole number that a plan can have", key, printable(item.dump()));
  return item.get<int>();
}

std::uint64_t bytes_of(const Json &json, const char *key) {
  std::optional<std::uint64_t> bytes;
  if (json[key].is_number_unsigned()) bytes = json[key].get<std::uint64_t>();
  if (json[key].is_string()) bytes = parse_bytes(json[key].get<std::string>());
  require(bytes && *bytes > 0, Code::format, "plan", "{} {} is no size such as 67108864 or \"64MiB\"", key,
          printable(json[key].dump()));
  return *bytes;
}

// A key that is misspelt would leave its default unsaid.
void require_known_keys(const Json &json) {
  static const std::vector<std::string_view> known = {"n_chunk",         "n_block",     "piece_bytes",   "n_persist",
                                                      "n_buffer",        "n_swap",      "n_checkpoint",  "n_selective",
                                                      "n_host",          "chunk_bytes", "shared_memory", "update",
                                                      "optimizer_order", "slack",       "chunks",        "blocks"};
  for (const auto &[key, value] : json.items()) {
    const std::string nearest = nearest_word(key, known);
    require(std::ranges::find(known, key) != known.end(), Code::format, "plan", "a plan has no '{}'{}", printable(key),
            nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
  }
}

Choice choice_from(const Json &json, Choice choice) {
  choice.n_persist = integer(json, "n_persist", choice.n_persist);
  choice.n_buffer = integer(json, "n_buffer", choice.n_buffer);
  choice.n_swap = integer(json, "n_swap", choice.n_swap);
  choice.n_checkpoint = integer(json, "n_checkpoint", choice.n_checkpoint);
  choice.n_selective = integer(json, "n_selective", choice.n_selective);
  choice.n_host = integer(json, "n_host", choice.n_host);
  choice.slack = integer(json, "slack", choice.slack);
  choice.shared_memory = json.value("shared_memory", choice.shared_memory);
  if (json.contains("chunk_bytes")) choice.chunk_bytes = bytes_of(json, "chunk_bytes");
  if (json.contains("piece_bytes")) choice.piece_bytes = bytes_of(json, "piece_bytes");
  if (json.contains("update")) choice.update = named<Tier>(json["update"], kTierNames, "place for an optimizer");
  if (json.contains("optimizer_order"))
    choice.order = named<OptimizerOrder>(json["optimizer_order"], kOrderNames, "order of the optimizer");
  return choice;
}

std::vector<Chunk> chunks_from(const Json &json, const graph::Graph &graph) {
  require(json.is_array(), Code::format, "plan", "chunks is no list");
  std::vector<Chunk> chunks;
  for (const Json &item : json) {
    Chunk &chunk = chunks.emplace_back();
    for (const Json &parameter : item.at("parameters")) {
      require(parameter.is_number_unsigned(), Code::format, "plan", "'{}' is no parameter's position",
              printable(parameter.dump()));
      chunk.parameters.push_back(parameter.get<std::size_t>());
    }
    chunk.tier = named<Tier>(item.at("tier"), kTierNames, "tier");
    if (item.contains("update")) chunk.update = named<Tier>(item["update"], kTierNames, "place for an optimizer");
    for (std::size_t p : chunk.parameters) {
      require(p < graph.parameters.size(), Code::arg, "plan", "the plan has a parameter {}, the model has {}", p,
              graph.parameters.size());
      const graph::Type &type = graph.value(graph.parameters[p]).type;
      chunk.bytes += byte_count(type.dtype, type.shape);
    }
  }
  return chunks;
}

template <typename Of>
int count(const std::vector<Of> &items, auto matches) {
  return static_cast<int>(std::ranges::count_if(items, matches));
}

Plan plan_from(const Json &json, const graph::Graph &graph, const Choice &base) {
  Plan plan = expand(graph, choice_from(json, base));
  if (json.contains("chunks")) {
    plan.chunks = chunks_from(json["chunks"], graph);
    plan.n_persist = count(plan.chunks, [](const Chunk &chunk) { return chunk.tier == Tier::device; });
    plan.n_buffer = integer(json, "n_buffer", base.n_buffer);
  }
  if (json.contains("blocks")) {
    plan.blocks.clear();
    require(json["blocks"].is_array(), Code::format, "plan", "blocks is no list of modes");
    for (const Json &mode : json["blocks"])
      plan.blocks.push_back(named<BlockMode>(mode, kModeNames, "mode of a block"));
    plan.n_swap = count(plan.blocks, [](BlockMode mode) { return mode == BlockMode::swap; });
    plan.n_checkpoint = count(plan.blocks, [](BlockMode mode) { return mode == BlockMode::recompute; });
    plan.n_selective = count(plan.blocks, [](BlockMode mode) { return mode == BlockMode::selective; });
  }
  return plan;
}

}  // namespace

std::string to_json(const Plan &plan) {
  Json json = {{"n_chunk", plan.chunks.size()},
               {"n_persist", plan.n_persist},
               {"n_buffer", plan.n_buffer},
               {"n_block", plan.blocks.size()},
               {"n_swap", plan.n_swap},
               {"n_checkpoint", plan.n_checkpoint},
               {"n_selective", plan.n_selective},
               {"shared_memory", plan.shared_memory},
               {"optimizer_order", kOrderNames[static_cast<int>(plan.order)]},
               {"slack", plan.slack},
               {"piece_bytes", plan.piece_bytes}};
  json["blocks"] = Json::array();
  for (BlockMode mode : plan.blocks) json["blocks"].push_back(kModeNames[static_cast<int>(mode)]);
  json["chunks"] = Json::array();
  for (const Chunk &chunk : plan.chunks)
    json["chunks"].push_back({{"bytes", chunk.bytes},
                              {"tier", kTierNames[static_cast<int>(chunk.tier)]},
                              {"update", kTierNames[static_cast<int>(chunk.update)]},
                              {"parameters", chunk.parameters}});
  return json.dump(1);
}

Plan from_json(const std::string &text, const graph::Graph &graph, const Choice &base) {
  Plan plan;
  try {
    require(!nests_deeper(text, kDeepest), Code::format, "plan", "the plan is nested too deep");
    const Json json = Json::parse(text);
    require(json.is_object(), Code::format, "plan", "a plan is a JSON object");
    require_known_keys(json);
    plan = plan_from(json, graph, base);
  } catch (const nlohmann::json::exception &error) {
    fail(Code::format, "plan", "the plan cannot be read: {}", printable(error.what()));
  }
  check(plan, graph);
  return plan;
}

}  // namespace protrain::plan
