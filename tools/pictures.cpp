#include "pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "svg.h"

namespace tool {

namespace {

constexpr double kWidth = 900, kLeft = 84, kTop = 40, kBelow = 52;
constexpr const char *kBlue = "#0072b2";

// Okabe and Ito's colours, which colour-blind people can tell apart; one per owner, in the owners' order.
constexpr const char *kColours[] = {"#0072b2", "#56b4e9", "#d55e00", "#cc79a7",
                                    "#009e73", "#f0e442", "#e69f00", "#999999"};
const char *colour(std::size_t owner) { return kColours[owner % std::size(kColours)]; }

std::string with_spaces(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return name;
}

// The part of the picture that shows the memory of one tier over the step. Each of `rows` is a time in seconds,
// followed by the bytes of each owner.
struct Panel {
  std::string tier;
  const Json &rows;
  double peak = 0, peak_at = 0;
};

double at(const Json &row) { return row[0].get<double>(); }

// The sum of the bytes of the first `owners` owners.
double sum(const Json &row, std::size_t owners) {
  double bytes = 0;
  for (std::size_t o = 1; o <= owners; ++o) bytes += row[o].get<double>();
  return bytes;
}

std::vector<Panel> panels_of(const Json &timeline) {
  std::vector<Panel> panels;
  const std::size_t owners = timeline.at("owners").size();
  for (const char *tier : {"device", "host", "disk"}) {
    const Json &rows = timeline.at(tier);
    if (rows.empty()) continue;
    Panel &panel = panels.emplace_back(Panel{tier, rows});
    for (const Json &row : rows)
      if (const double bytes = sum(row, owners); bytes > panel.peak) {
        panel.peak = bytes;
        panel.peak_at = at(row);
      }
  }
  return panels;
}

// Draws one area per owner, stacked. Each area reaches down to the axis. The top area is drawn first, and the next ones
// cover its lower part.
void draw_areas(Svg &svg, const Plot &plot, const Panel &panel, std::size_t owners) {
  for (std::size_t o = owners; o > 0; --o) {
    const bool held = std::ranges::any_of(panel.rows, [&](const Json &row) { return row[o].get<double>() > 0; });
    if (!held) continue;
    std::vector<Point> positions;
    for (const Json &row : panel.rows) positions.push_back(plot.at(at(row), sum(row, o)));
    svg.steps(positions, plot.box.bottom(), colour(o - 1));
  }
}

// Lists the owners from top to bottom, like the areas.
void draw_legend(Svg &svg, Point position, const Json &owners, const std::vector<Panel> &panels) {
  for (std::size_t o = owners.size(); o > 0; --o) {
    const auto holds = [&](const Panel &panel) {
      return std::ranges::any_of(panel.rows, [&](const Json &row) { return row[o].get<double>() > 0; });
    };
    if (std::ranges::none_of(panels, holds)) continue;
    svg.rectangle({position.x, position.y, 14, 14}, colour(o - 1));
    svg.text({position.x + 21, position.y + 12}, with_spaces(owners[o - 1]));
    position.y += 22;
  }
}

void draw_panel(Svg &svg, const Plot &plot, const Panel &panel, std::size_t owners) {
  const Unit unit = byte_unit(panel.peak), time = second_unit(plot.x_high);
  svg.heading({plot.box.x, plot.box.y - 14}, panel.tier == "disk" ? "disk" : panel.tier + " memory");
  svg.text({plot.box.right(), plot.box.y - 14},
           fmt::format("peak {} at {}", unit.text(panel.peak), time.text(panel.peak_at)), Svg::Anchor::end);
  draw_y_axis(svg, plot, unit);
  draw_areas(svg, plot, panel, owners);
  draw_x_axis(svg, plot, time, fmt::format("time in the step, {}", time.name));
}

double end_of(const std::vector<Panel> &panels) {
  double end = 0;
  for (const Panel &panel : panels) end = std::max(end, at(panel.rows.back()));
  return end > 0 ? end : 1e-3;
}

// Returns a curve with fewer points. Of each stretch of neighbouring points, only the highest and the lowest stay.
std::vector<Point> thinned(const std::vector<Point> &points) {
  const std::size_t stretch = points.size() / 500 + 1;
  std::vector<Point> kept;
  for (std::size_t begin = 0; begin < points.size(); begin += stretch) {
    const auto first = points.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = points.begin() + static_cast<std::ptrdiff_t>(std::min(begin + stretch, points.size()));
    const auto [low, high] = std::minmax_element(first, last, [](Point a, Point b) { return a.y < b.y; });
    kept.push_back(*std::min(low, high));
    if (low != high) kept.push_back(*std::max(low, high));
  }
  return kept;
}

}  // namespace

std::string memory_picture(const Json &timeline) {
  constexpr double kHeight = 210, kLegend = 172;
  const std::vector<Panel> panels = panels_of(timeline);
  const double panel_height = kTop + kHeight + kBelow;
  const Json &owners = timeline.at("owners");
  Svg svg(kWidth, std::max(panel_height * static_cast<double>(panels.size()), kTop), "Memory over a step, by owner");
  const double end = end_of(panels);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const Box box = {kLeft, panel_height * static_cast<double>(i) + kTop, kWidth - kLeft - kLegend - 24, kHeight};
    draw_panel(svg, {.box = box, .x_high = end, .y_high = panels[i].peak * 1.06}, panels[i], owners.size());
  }
  draw_legend(svg, {kWidth - kLegend, kTop}, owners, panels);
  return svg.str();
}

std::string queues_picture(const Json &queues, const Json &costs) {
  constexpr double kRow = 30, kBar = 18, kShare = 96;
  std::vector<std::string> names;
  for (const auto &[name, bars] : queues.items())
    if (!bars.empty()) names.push_back(name);
  const double seconds = costs.at("seconds").get<double>(), height = kRow * static_cast<double>(names.size());
  const Plot plot = {.box = {kLeft, 12, kWidth - kLeft - kShare, height}, .x_high = seconds > 0 ? seconds : 1e-3};
  Svg svg(kWidth, 12 + height + kBelow, "When each queue was busy");
  for (std::size_t row = 0; row < names.size(); ++row) {
    const double y = plot.box.y + kRow * static_cast<double>(row);
    svg.rectangle({plot.box.x, y, plot.box.width, kBar}, "#f2f2f2");
    for (const Json &bar : queues.at(names[row])) {
      const double from = plot.at(bar[0], 0).x, to = plot.at(bar[1], 0).x;
      svg.rectangle({from, y, std::max(to - from, 0.3), kBar}, names[row] == "compute" ? kBlue : "#d55e00");
    }
    svg.text({plot.box.x - 8, y + 14}, names[row], Svg::Anchor::end);
    const double busy = costs.at("busy_seconds").at(names[row]).get<double>() / plot.x_high;
    svg.text({plot.box.right() + 10, y + 14}, fmt::format("{:.0f} % busy", 100 * busy));
  }
  const Unit time = second_unit(plot.x_high);
  draw_x_axis(svg, plot, time, fmt::format("time in the step, {}", time.name));
  return svg.str();
}

std::string curves_picture(const std::string &title, const std::vector<Curve> &curves) {
  constexpr double kHeight = 240;
  Svg svg(kWidth, 16 + kHeight + kBelow, title);
  std::vector<std::vector<Point>> points;
  std::vector<Point> all;
  for (const Curve &curve : curves) {
    std::vector<Point> &own = points.emplace_back();
    for (const StepValue &at : curve.values)
      if (std::isfinite(at.value)) own.push_back({static_cast<double>(at.step), at.value});
    all.insert(all.end(), own.begin(), own.end());
  }
  if (all.empty()) return svg.str();
  const auto [low, high] = std::ranges::minmax(all, {}, &Point::y);
  const auto [first, last] = std::ranges::minmax(all, {}, &Point::x);
  const double margin = std::max((high.y - low.y) * 0.06, std::abs(high.y) * 1e-3 + 1e-9);
  const Plot plot = {.box = {kLeft, 16, kWidth - kLeft - 24, kHeight},
                     .x_low = first.x,
                     .x_high = std::max(last.x, first.x + 1),
                     .y_low = low.y - margin,
                     .y_high = high.y + margin};
  draw_y_axis(svg, plot, {});
  for (std::size_t c = 0; c < curves.size(); ++c) {
    if (points[c].empty()) continue;
    const char *ink = c == 0 ? kBlue : "#d55e00";
    std::vector<Point> positions;
    for (const Point &point : thinned(points[c])) positions.push_back(plot.at(point.x, point.y));
    svg.curve(positions, ink);
    if (positions.size() < 50)
      for (const Point &position : positions) svg.dot(position, ink);
    if (curves.size() == 1) continue;
    const double y = plot.box.y + 8 + 22 * static_cast<double>(c);
    svg.rectangle({plot.box.right() - 150, y, 14, 14}, ink);
    svg.text({plot.box.right() - 129, y + 12}, curves[c].name);
  }
  draw_x_axis(svg, plot, {.least = 1}, "step");
  return svg.str();
}

}  // namespace tool
