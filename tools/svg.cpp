#include "svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tool {

namespace {

constexpr double kTick = 5;

// A number as text, without scientific notation or trailing zeros.
std::string number(double value) {
  std::string text = fmt::format("{:.6f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string pixels(double value) { return number(std::round(value * 10) / 10); }

struct Entity {
  char character;
  const char *name;
};
constexpr Entity kEntities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};

const char *name_of(Svg::Anchor anchor) {
  if (anchor == Svg::Anchor::start) return "start";
  return anchor == Svg::Anchor::middle ? "middle" : "end";
}

}  // namespace

std::string escaped(std::string_view text) {
  using nlohmann::json;
  const std::string valid = json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace));
  std::string out;
  for (const char c : valid) {
    const auto *const entity = std::ranges::find(kEntities, c, &Entity::character);
    if (entity != std::end(kEntities))
      out += entity->name;
    else
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

Svg::Svg(double width, double height, const std::string &title)
    : text_(fmt::format(
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
          "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"{2}\">\n<title>{3}</title>\n",
          pixels(width), pixels(height), kInk, escaped(title))) {
  rectangle({0, 0, width, height}, "#ffffff");
}

void Svg::rectangle(const Box &box, std::string_view fill) {
  text_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", pixels(box.x),
                       pixels(box.y), pixels(box.width), pixels(box.height), fill);
}

void Svg::line(Point from, Point to, std::string_view stroke) {
  text_ += fmt::format("<path d=\"M{} {}L{} {}\" stroke=\"{}\"/>\n", pixels(from.x), pixels(from.y), pixels(to.x),
                       pixels(to.y), stroke);
}

void Svg::curve(const std::vector<Point> &points, std::string_view stroke) {
  text_ += "<polyline points=\"";
  for (const Point &point : points) text_ += fmt::format("{},{} ", pixels(point.x), pixels(point.y));
  text_ += fmt::format("\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-linejoin=\"round\"/>\n", stroke);
}

void Svg::dot(Point at, std::string_view fill) {
  text_ += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"3\" fill=\"{}\"/>\n", pixels(at.x), pixels(at.y), fill);
}

void Svg::steps(const std::vector<Point> &points, double floor, std::string_view fill) {
  std::string path = fmt::format("M{} {}", pixels(points.front().x), pixels(floor)), x, y;
  for (const Point &point : points) {
    if (y == pixels(point.y)) continue;
    if (x != pixels(point.x)) path += "H" + pixels(point.x);
    path += "V" + pixels(point.y);
    x = pixels(point.x);
    y = pixels(point.y);
  }
  path += fmt::format("H{}V{}Z", pixels(points.back().x), pixels(floor));
  text_ += fmt::format("<path d=\"{0}\" fill=\"{1}\" stroke=\"{1}\" stroke-width=\"0.8\"/>\n", path, fill);
}

void Svg::text(Point at, std::string_view text, Anchor anchor) {
  text_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", pixels(at.x), pixels(at.y),
                       name_of(anchor), escaped(text));
}

void Svg::heading(Point at, std::string_view text) {
  text_ += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"15\" font-weight=\"bold\">{}</text>\n", pixels(at.x),
                       pixels(at.y), escaped(text));
}

std::vector<double> ticks(double low, double high, int count, double least) {
  if (!(high > low)) return {low};
  const double rough = std::max((high - low) / count, least), power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double digit : {5, 2, 1})
    if (rough / power <= digit) step = power * digit;
  std::vector<double> all;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) all.push_back(i * step);
  return all;
}

std::string Unit::text(double value) const {
  const double of_it = value / size;
  int digits = of_it >= 10 ? 1 : 2;
  if (of_it >= 100 || of_it == std::floor(of_it)) digits = 0;
  return fmt::format("{:.{}f} {}", of_it, digits, name);
}

Unit byte_unit(double most) {
  Unit unit{.least = 1, .name = "B"};
  for (const char *name : {"KiB", "MiB", "GiB", "TiB"}) {
    if (most < unit.size * 1024) break;
    unit = {.size = unit.size * 1024, .name = name};
  }
  return unit;
}

Unit second_unit(double most) { return most < 10 ? Unit{.size = 1e-3, .name = "ms"} : Unit{.size = 1, .name = "s"}; }

std::string time_text(double seconds) {
  return seconds < 1 ? second_unit(seconds).text(seconds) : fmt::format("{:.2f} s", seconds);
}

std::string count_text(double count) {
  if (count >= 999950) return fmt::format("{:.2f} M", count / 1e6);
  if (count >= 9999.5) return fmt::format("{:.1f} k", count / 1e3);
  return fmt::format("{:.0f}", count);
}

Point Plot::at(double x, double y) const {
  return {box.x + (x - x_low) / (x_high - x_low) * box.width,
          box.bottom() - (y - y_low) / (y_high - y_low) * box.height};
}

void draw_y_axis(Svg &svg, const Plot &plot, const Unit &unit) {
  const int count = std::clamp(static_cast<int>(plot.box.height / 40), 2, 6);
  for (const double value : ticks(plot.y_low / unit.size, plot.y_high / unit.size, count)) {
    const double y = plot.at(0, value * unit.size).y;
    svg.line({plot.box.x, y}, {plot.box.right(), y}, kFaint);
    svg.text({plot.box.x - 8, y + 4.5}, number(value) + (unit.name.empty() ? "" : " " + unit.name), Svg::Anchor::end);
  }
}

void draw_x_axis(Svg &svg, const Plot &plot, const Unit &unit, const std::string &label) {
  const double y = plot.box.bottom();
  svg.line({plot.box.x, y}, {plot.box.right(), y}, kInk);
  for (const double value : ticks(plot.x_low / unit.size, plot.x_high / unit.size, 8, unit.least)) {
    const double x = plot.at(value * unit.size, 0).x;
    svg.line({x, y}, {x, y + kTick}, kInk);
    svg.text({x, y + 19}, number(value), Svg::Anchor::middle);
  }
  svg.text({plot.box.right(), y + 37}, label, Svg::Anchor::end);
}

}  // namespace tool
