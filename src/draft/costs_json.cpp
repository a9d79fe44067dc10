#include "draft/costs_json.h"

#include <algorithm>

#include "program/timeline.h"

namespace protrain::draft {

namespace {

constexpr std::size_t kPoints = 400;    // the largest number of points in a timeline
constexpr std::int64_t kPixels = 1000;  // width of a chart; gaps narrower than a pixel are left out

constexpr int kProcess = 0;  // the process that all tracks of a trace belong to

double to_microseconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-3; }

// Returns an event with the members that every event has. `phase` is a letter of Chrome's format: M is a name, X a
// span, C a counter.
Json event(const char *phase, const std::string &name, std::int64_t at_ns, int track) {
  return {{"ph", phase}, {"name", name}, {"pid", kProcess}, {"tid", track}, {"ts", to_microseconds(at_ns)}};
}

Json track_name(Queue queue) {
  Json json = event("M", "thread_name", 0, static_cast<int>(queue));
  json["args"] = {{"name", kQueueNames[queue]}};
  return json;
}

Json instruction_event(const program::Program &program, const graph::Graph &graph, std::size_t instruction,
                       const program::Span &span) {
  const program::Instruction &it = program.instructions[instruction];
  Json json = event("X", operation_of(it, graph), span.start_ns, static_cast<int>(it.queue));
  json["dur"] = to_microseconds(span.end_ns - span.start_ns);
  json["args"] = {{"instruction", describe(program, graph, instruction)}};
  return json;
}

Json memory_event(Tier tier, const program::TimelinePoint &point) {
  Json json = event("C", std::string(kTierNames[tier]) + " memory", point.at_ns, 0);
  Json &bytes = json["args"] = Json::object();
  for (std::size_t owner = 0; owner < point.bytes.values.size(); ++owner)
    bytes[program::kOwnerNames.values[owner]] = point.bytes.values[owner];
  return json;
}

}  // namespace

Json costs_json(const program::Summary &summary, const PerTier<std::uint64_t> &peak_bytes) {
  Json json = {{"seconds", to_seconds(summary.step_ns)},
               {"device_peak_bytes", peak_bytes[Tier::device]},
               {"host_peak_bytes", peak_bytes[Tier::host]},
               {"disk_bytes", peak_bytes[Tier::disk]},
               {"overlap", summary.overlap}};
  for (const Queue q : kQueues) json["busy_seconds"][kQueueNames[q]] = to_seconds(summary.busy_ns[q]);
  for (const program::Stall s : program::kStalls)
    json["stall_seconds"][program::kStallNames[s]] = to_seconds(summary.stall_ns[s]);
  return json;
}

Json costs_json(const program::Program &program, const program::Simulation &simulation, const program::Beside &beside) {
  const std::vector<program::Span> spans = spans_of(simulation);
  return costs_json(summarize(program, spans, beside, simulation.step_ns),
                    simulation.entries.empty() ? program.state_bytes : simulation.entries.back().high_bytes);
}

Json timeline_json(const program::Program &program, const std::vector<program::Span> &spans) {
  Json json = {{"owners", program::kOwnerNames.values}};
  const program::Timeline timeline = program::timeline(program, spans, kPoints);
  for (const Tier t : kTiers) {
    Json &points = json[kTierNames[t]] = Json::array();
    for (const program::TimelinePoint &point : timeline[t]) {
      Json &row = points.push_back(Json::array({to_seconds(point.at_ns)}));
      for (std::uint64_t bytes : point.bytes) row.push_back(bytes);
    }
  }
  return json;
}

Json queues_json(const program::Program &program, const std::vector<program::Span> &spans) {
  std::int64_t end_ns = 0;
  for (const program::Span &span : spans) end_ns = std::max(end_ns, span.end_ns);
  Json json;
  for (const Queue q : kQueues) {
    Json &bars = json[kQueueNames[q]] = Json::array();
    for (const program::Span &span : busy_spans(program, spans, q, end_ns / kPixels))
      bars.push_back(Json::array({to_seconds(span.start_ns), to_seconds(span.end_ns)}));
  }
  return json;
}

Json trace_events_json(const program::Program &program, const graph::Graph &graph,
                       const std::vector<program::Span> &spans) {
  Json events = Json::array();
  for (const Queue queue : kQueues) events.push_back(track_name(queue));
  for (std::size_t i = 0; i < spans.size(); ++i) events.push_back(instruction_event(program, graph, i, spans[i]));
  const program::Timeline timeline = program::timeline(program, spans, kPoints);
  for (const Tier tier : kTiers)
    for (const program::TimelinePoint &point : timeline[tier]) events.push_back(memory_event(tier, point));
  return events;
}

}  // namespace protrain::draft
