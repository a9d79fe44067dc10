#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "handles.h"
#include "svg.h"

namespace tool {

namespace {

constexpr const char *kStyle = R"(
body { font: 15px/1.5 Helvetica, Arial, sans-serif; color: #222222; background: #ffffff; max-width: 920px;
       margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.6em; } h2 { font-size: 1.2em; margin-top: 2em; }
table { border-collapse: collapse; } td, th { padding: 0.25em 1.2em 0.25em 0; text-align: left; }
th { border-bottom: 1px solid #222222; } td { border-bottom: 1px solid #e4e4e4; }
.n { text-align: right; font-variant-numeric: tabular-nums; } p { color: #555555; }
svg { max-width: 100%; height: auto; }
)";

// A table in HTML. The first cell of a line is text, the others are numbers.
class Table {
 public:
  explicit Table(const std::vector<std::string> &head) : text_("<table>\n") { line("th", head); }
  void row(const std::vector<std::string> &cells) { line("td", cells); }
  std::string str() const { return text_ + "</table>\n"; }

 private:
  void line(const char *tag, const std::vector<std::string> &cells) {
    text_ += "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i)
      text_ += fmt::format("<{0}{1}>{2}</{0}>", tag, i > 0 ? " class=\"n\"" : "", escaped(cells[i]));
    text_ += "</tr>\n";
  }

  std::string text_;
};

// The exact number of bytes, and the same in a larger unit: "2097152 B = 2 MiB".
std::string exact_bytes_text(const Json &bytes) {
  const auto value = bytes.get<double>();
  return value < 1024 ? bytes.dump() + " B" : fmt::format("{} B = {}", bytes.dump(), byte_unit(value).text(value));
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Adds two rows, each with two numbers of bytes. Leaves out a row whose numbers are both 0, as on a device without
// memory of its own.
void add_memory(Table &table, const Json &memory) {
  const auto row = [&](const char *name, const char *key, const char *other) {
    if (memory.at(key) == 0 && memory.at(other) == 0) return;
    table.row({name, fmt::format("{}; {}", exact_bytes_text(memory.at(key)), exact_bytes_text(memory.at(other)))});
  };
  row("free on the device: when it was opened; at the end", "device_free_before_bytes", "device_free_bytes");
  row("host memory: pinned; refused", "pinned_bytes", "unpinned_bytes");
}

std::string run_table(const RunRecord &run) {
  const Json &about = run.about;
  const auto count = [&](const char *key) { return about.value(key, std::uint64_t{0}); };
  const double seconds = median(run.seconds);
  Table table({"", ""});
  table.row({"model", run.model});
  table.row({"device", fmt::format("{}: {}", about.value("device", "?"), about.value("description", "?"))});
  table.row({"threads", std::to_string(count("threads"))});
  table.row({"steps", run.steps == 0 ? "none" : fmt::format("{} to {}", run.before + 1, run.last_step())});
  table.row({"time of a step, median", time_text(seconds)});
  if (!run.seconds.empty())
    table.row(
        {"waiting for data, mean of a step", time_text(run.data_seconds / static_cast<double>(run.seconds.size()))});
  if (run.tokens > 0 && seconds > 0) table.row({run.unit + " per second", fmt::format("{:.0f}", run.tokens / seconds)});
  if (run.ranks > 1) table.row({"ranks", fmt::format("{}; memory and queues are those of rank 0", run.ranks)});
  table.row({"batches of a step", std::to_string(std::max<std::uint64_t>(count("accumulation"), 1) * run.ranks)});
  table.row({"chunks", fmt::format("{}, of which {} persist (n_persist); {} buffers (n_buffer)", count("n_chunk"),
                                   count("n_persist"), count("n_buffer"))});
  table.row({"blocks",
             fmt::format(
                 "{}, of which {} swap (n_swap), {} recompute (n_checkpoint), {} recompute what is light (n_selective)",
                 count("n_block"), count("n_swap"), count("n_checkpoint"), count("n_selective"))});
  table.row({"instructions of a step", std::to_string(count("instructions"))});
  add_memory(table, run.report.at("memory"));
  if (const auto refusal = run.report.value("not_recorded", ""); !refusal.empty())
    table.row({"issued step by step, for it could not be recorded", refusal});
  return table.str();
}

// Returns the cause of a stall in words.
std::string cause(const std::string &name) {
  const std::pair<const char *, const char *> kSentences[] = {
      {"update", "for the optimizer"},
      {"fetch", "for weights or optimizer state from the host (fetch)"},
      {"offload", "for gradients or state on their way to the host (offload)"},
      {"swap_out", "for activations to leave (swap out)"},
      {"swap_in", "for activations to come back (swap in)"},
      {"read", "for the disk to read"},
      {"write", "for the disk to write"},
      {"all_to_all", "for gradients of the other ranks (all-to-all)"},
      {"all_gather", "for weights of the other ranks (all-gather)"},
      {"inline", "while copies or updates ran in its place (inline)"},
      {"start", "before its first instruction"},
      {"end", "after its last instruction"},
      {"issue", "for instructions to be issued"}};
  for (const auto &[key, sentence] : kSentences)
    if (name == key) return std::string("compute idle ") + sentence;
  return "compute idle: " + name;
}

// A table of costs. It has a column for predicted costs and one for measured costs, each only if the report has them. A
// busy or idle time that is 0 in all columns has no line.
class Costs {
 public:
  explicit Costs(const Json &report) {
    for (const char *name : {"predicted", "measured"})
      if (report.contains(name)) {
        columns_.push_back(&report.at(name));
        names_.emplace_back(name);
      }
  }

  std::string table() const {
    std::vector<std::string> head = {"one step"};
    head.insert(head.end(), names_.begin(), names_.end());
    Table table(head);
    add(table, "time", [](const Json &costs) { return time_text(costs.at("seconds")); });
    for (const auto &[key, name] : {std::pair{"device_peak_bytes", "device memory, peak"},
                                    std::pair{"host_peak_bytes", "host memory, peak"}, std::pair{"disk_bytes", "disk"}})
      add(table, name, [key = key](const Json &costs) { return exact_bytes_text(costs.at(key)); });
    const auto &queues = columns_.front()->at("busy_seconds");
    if (std::ranges::any_of(queues.items(), [&](const auto &item) {
          return item.key() != "compute" && some("busy_seconds", item.key());
        }))
      add(table, "overlap: other queues' work beside compute",
          [](const Json &costs) { return fmt::format("{:.0f} %", 100 * costs.at("overlap").get<double>()); });
    add_parts(table, "busy_seconds", [](const std::string &queue) { return queue + " busy"; });
    add_parts(table, "stall_seconds", cause);
    return table.str();
  }

 private:
  bool some(const std::string &group, const std::string &key) const {
    return std::ranges::any_of(columns_, [&](const Json *costs) { return costs->at(group).at(key).get<double>() > 0; });
  }

  template <typename Cell>
  void add(Table &table, const std::string &name, Cell cell) const {
    std::vector<std::string> row = {name};
    for (const Json *costs : columns_) row.push_back(cell(*costs));
    table.row(row);
  }

  template <typename Name>
  void add_parts(Table &table, const std::string &group, Name name) const {
    for (const auto &[key, value] : columns_.front()->at(group).items())
      if (some(group, key))
        add(table, name(key), [&, key = key](const Json &costs) {
          const auto seconds = costs.at(group).at(key).template get<double>();
          const double whole = std::max(costs.at("seconds").template get<double>(), 1e-9);
          return fmt::format("{} ({:.1f} %)", time_text(seconds), 100 * seconds / whole);
        });
  }

  std::vector<const Json *> columns_;
  std::vector<std::string> names_;
};

std::string operators_table(const Json &operators) {
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto &[name, cost] : operators.items()) sorted.emplace_back(cost.at("seconds").get<double>(), name);
  std::ranges::sort(sorted, std::greater());
  Table table({"operator", "times", "time"});
  for (const auto &[seconds, name] : sorted)
    table.row({name, operators.at(name).at("launches").dump(), time_text(seconds)});
  return table.str();
}

std::string alarms_table(const Json &alarms) {
  Table table({"found", "in step"});
  for (const Json &alarm : alarms)
    table.row(
        {alarm.at("text").get<std::string>(), alarm.at("step") == 0 ? "before the first" : alarm.at("step").dump()});
  return table.str();
}

std::string norms_table(const Json &norms) {
  Table table({"group", "norm"});
  for (const auto &[group, norm] : norms.items())
    table.row({group, norm.is_null() ? "not finite" : fmt::format("{:.4g}", norm.get<double>())});
  return table.str();
}

}  // namespace

std::string report_page(const RunRecord &run) {
  const Json &report = run.report;
  const std::string title = escaped("protrain: " + run.model);
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head><meta charset=\"utf-8\"/>"
      "<title>{0}</title><style>{1}</style></head>\n<body>\n<h1>{0}</h1>\n",
      title, kStyle);
  const auto section = [&](const char *heading, const std::string &text, const std::string &body) {
    page += fmt::format("<h2>{}</h2>\n", heading);
    if (!text.empty()) page += fmt::format("<p>{}</p>\n", text);
    page += body;
  };
  section("What was run", "", run_table(run));
  if (const Json &alarms = report.at("alarms"); !alarms.empty()) section("Alarms", "", alarms_table(alarms));
  std::vector<Curve> losses = {{"training", run.losses}};
  if (!run.evaluations.empty()) losses.push_back({"evaluation", run.evaluations});
  section("Loss", "", curves_picture("Loss by step", losses));
  section("Learning rate", "", curves_picture("Learning rate by step", {{"learning rate", run.rates}}));
  if (const Json &norms = report.at("grad_norms"); !norms.empty())
    section("Norms of gradients",
            fmt::format("By group of parameters, in step {}.", report.value("grad_norms_step", 0)), norms_table(norms));
  section("One step",
          fmt::format("Measured in step {} (of several batches: in its last one).", report.value("timed_step", 0)),
          Costs(report).table());
  section("Memory over the step",
          "What each kind of array holds while the step goes on. The peaks above are those of the arenas, which may "
          "have gaps between arrays.",
          memory_picture(report.at("timeline")));
  section("Queues over the step", "Bars show when a queue was at work.",
          queues_picture(report.at("queues"), report.at("measured")));
  section("Time by operator", "", operators_table(report.at("operators")));
  return page + "</body>\n</html>\n";
}

void write_text(const std::string &path, const std::string &text) {
  std::FILE *file = std::fopen(path.c_str(), "w");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int error = errno;
  if (file != nullptr && std::fclose(file) != 0) written = false;
  if (!written) throw Failure(fmt::format("{}: {}", path, std::strerror(error != 0 ? error : errno)));
}

}  // namespace tool
