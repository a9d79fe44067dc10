// Plans as JSON. Writing gives the full form; reading takes the full form or the integers that expand() takes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "plan/plan.h"

namespace protrain::plan {

namespace {

constexpr const char *kModeNames[] = {"keep", "recompute", "swap", "selective"};

template <typename Enum, typename Names>
Enum named(const Json &json, const Names &names, const char *what) {
  const std::string *name = json.text();
  require(name != nullptr, Code::format, "plan", "{} is no text, and so no {}; known are {}", json, what,
          fmt::join(names, ", "));
  const std::optional<Enum> value = value_named<Enum>(*name, names);
  require(value.has_value(), Code::format, "plan", "'{}' is no {}; known are {}", printable(*name), what,
          fmt::join(names, ", "));
  return *value;
}

// Returns the integer under `key`, or `fallback` if the key is absent. Throws if the value is not whole (1.5), or too
// large for an int (1e12).
int integer(const Json &json, const char *key, int fallback) {
  const Json *item = json.find(key);
  if (item == nullptr) return fallback;
  const bool fits = item->whole() != nullptr && std::in_range<int>(*item->whole());
  require(fits, Code::format, "plan", "{} {} is no whole number that a plan can have", key, *item);
  return static_cast<int>(*item->whole());
}

std::uint64_t bytes_of(const Json &json, const char *key, std::uint64_t fallback) {
  const Json *item = json.find(key);
  if (item == nullptr) return fallback;
  std::optional<std::uint64_t> bytes;
  if (item->whole() != nullptr) bytes = *item->whole();
  if (item->text() != nullptr) bytes = parse_bytes(*item->text());
  require(bytes && *bytes > 0, Code::format, "plan", "{} {} is no size such as 67108864 or \"64MiB\"", key, *item);
  return *bytes;
}

bool truth(const Json &json, const char *key, bool fallback) {
  const Json *item = json.find(key);
  if (item == nullptr) return fallback;
  require(item->truth() != nullptr, Code::format, "plan", "{} {} is neither true nor false", key, *item);
  return *item->truth();
}

const Json &member(const Json &json, const char *key) {
  const Json *item = json.find(key);
  require(item != nullptr, Code::format, "plan", "{} has no {}", json, key);
  return *item;
}

const Json::Array &list(const Json &json, const char *key) {
  const Json::Array *items = member(json, key).items();
  require(items != nullptr, Code::format, "plan", "{} is no list", key);
  return *items;
}

// Throws unless the value is an object whose keys are all among `known`. If a misspelt key were ignored, the default
// would silently replace its value. `what`: the name of the object for the error, such as "a chunk".
void require_object(const Json &json, const std::vector<std::string_view> &known, const char *what) {
  require(json.members() != nullptr, Code::format, "plan", "{} is a JSON object", what);
  for (const auto &[key, value] : *json.members()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::string nearest = nearest_word(key, known);
    fail(Code::format, "plan", "{} has no '{}'{}", what, printable(key),
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
  choice.ranks = integer(json, "ranks", choice.ranks);
  choice.n_whole = integer(json, "n_whole", choice.n_whole);
  choice.slack = integer(json, "slack", choice.slack);
  choice.shared_memory = truth(json, "shared_memory", choice.shared_memory);
  choice.chunk_bytes = bytes_of(json, "chunk_bytes", choice.chunk_bytes);
  choice.piece_bytes = bytes_of(json, "piece_bytes", choice.piece_bytes);
  if (const Json *update = json.find("update")) {
    const Tier tier = named<Tier>(*update, kTierNames, "place for an optimizer");
    require(tier != Tier::disk, Code::arg, "plan", "an optimizer cannot run on the disk");
    choice.n_device_update = tier == Tier::device ? -1 : 0;
  }
  choice.n_device_update = integer(json, "n_device_update", choice.n_device_update);
  const Json *deferred = json.find("n_deferred");
  const bool all = deferred != nullptr && deferred->text() != nullptr && *deferred->text() == "all";
  choice.n_deferred = all ? -1 : integer(json, "n_deferred", choice.n_deferred);
  if (const Json *order = json.find("optimizer_order"))
    choice.order = named<OptimizerOrder>(*order, kOrderNames, "order of the optimizer");
  return choice;
}

std::vector<Chunk> chunks_from(const Json &json, const graph::Graph &graph, int ranks) {
  std::vector<Chunk> chunks;
  for (const Json &item : list(json, "chunks")) {
    require_object(item, {"bytes", "parameters", "tier", "update", "deferred", "sharded"}, "a chunk");
    Chunk &chunk = chunks.emplace_back();
    for (const Json &parameter : list(item, "parameters")) {
      require(parameter.whole() != nullptr, Code::format, "plan", "'{}' is no parameter's position", parameter);
      chunk.parameters.push_back(*parameter.whole());
    }
    chunk.tier = named<Tier>(member(item, "tier"), kTierNames, "tier");
    if (const Json *update = item.find("update"))
      chunk.update = named<Tier>(*update, kTierNames, "place for an optimizer");
    chunk.deferred = truth(item, "deferred", false);
    chunk.sharded = truth(item, "sharded", ranks > 1 && chunk.tier != Tier::device);
    for (std::size_t p : chunk.parameters) {
      require(p < graph.weights().size(), Code::arg, "plan",
              "the plan has a parameter {}, and the model has {}, counted from 0; give a plan of this model", p,
              graph.weights().size());
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
  if (json.find("chunks") != nullptr) {
    plan.chunks = chunks_from(json, graph, plan.ranks);
    plan.n_persist = count(plan.chunks, [](const Chunk &chunk) { return chunk.tier == Tier::device; });
    plan.n_buffer = integer(json, "n_buffer", base.n_buffer);
  }
  if (json.find("blocks") != nullptr) {
    plan.blocks.clear();
    for (const Json &mode : list(json, "blocks"))
      plan.blocks.push_back(named<BlockMode>(mode, kModeNames, "mode of a block"));
    plan.n_swap = count(plan.blocks, [](BlockMode mode) { return mode == BlockMode::swap; });
    plan.n_checkpoint = count(plan.blocks, [](BlockMode mode) { return mode == BlockMode::recompute; });
    plan.n_selective = count(plan.blocks, [](BlockMode mode) { return mode == BlockMode::selective; });
  }
  return plan;
}

// Checks a number of chunks or blocks that the text gives under `key`, and throws if the plan has another number of
// them. Does not check the number if the text has a list under `what`: the text is then a full plan, and the plan was
// made from this list.
void require_number(const Json &json, const char *key, const char *what, std::size_t number) {
  if (json.find(what) != nullptr) return;
  const int said = integer(json, key, static_cast<int>(number));
  require(std::cmp_equal(said, number), Code::arg, "plan",
          "{} is {}, and with this plan the model has {} {}; correct it, or leave it out", key, said, number, what);
}

}  // namespace

Json as_json(const Plan &plan) {
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
  if (plan.ranks > 1) json["ranks"] = plan.ranks;
  json["chunks"] = Json::array();
  for (const Chunk &chunk : plan.chunks) {
    Json item = {{"bytes", chunk.bytes},
                 {"tier", kTierNames[chunk.tier]},
                 {"update", kTierNames[chunk.update]},
                 {"deferred", chunk.deferred},
                 {"parameters", chunk.parameters}};
    if (plan.ranks > 1) item["sharded"] = chunk.sharded;
    json["chunks"].push_back(std::move(item));
  }
  return json;
}

std::string to_json(const Plan &plan) { return as_json(plan).dump(1); }

Plan from_json(const std::string &text, const graph::Graph &graph, const Choice &base) {
  const Json json = parse_json(text, "plan");
  require_object(
      json, {"n_chunk",     "n_block", "piece_bytes", "n_persist",       "n_buffer", "n_swap",          "n_checkpoint",
             "n_selective", "n_host",  "chunk_bytes", "shared_memory",   "update",   "n_device_update", "n_deferred",
             "slack",       "chunks",  "blocks",      "optimizer_order", "ranks",    "n_whole"},
      "a plan");
  const Plan plan = plan_from(json, graph, base);
  require_number(json, "n_chunk", "chunks", plan.chunks.size());
  require_number(json, "n_block", "blocks", plan.blocks.size());
  check(plan, graph);
  return plan;
}

}  // namespace protrain::plan
