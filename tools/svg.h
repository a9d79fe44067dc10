// Writes SVG drawings. Coordinates are pixels from the top left corner.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tool {

struct Point {
  double x = 0, y = 0;
};

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  double right() const { return x + width; }
  double bottom() const { return y + height; }
};

// Escapes text for XML, HTML and attributes. Bytes that are not UTF-8 become U+FFFD.
std::string escaped(std::string_view text);

class Svg {
 public:
  enum class Anchor { start, middle, end };

  // `title` is for screen readers. The drawing has a white background.
  Svg(double width, double height, const std::string &title);

  void rectangle(const Box &box, std::string_view fill);
  void line(Point from, Point to, std::string_view stroke);
  void curve(const std::vector<Point> &points, std::string_view stroke);
  void dot(Point at, std::string_view fill);
  // Fills the area between y = `floor` and a curve of steps. From the x of a point to the x of the next point, the
  // curve has the first point's y. The area has an outline, so that it stays visible if it is narrower than a pixel.
  void steps(const std::vector<Point> &points, double floor, std::string_view fill);
  void text(Point at, std::string_view text, Anchor anchor = Anchor::start);
  void heading(Point at, std::string_view text);

  std::string str() const { return text_ + "</svg>\n"; }

 private:
  std::string text_;
};

// Returns about `count` round numbers for an axis from `low` to `high`: multiples of 1, 2 or 5 times a power of ten.
// The numbers are at least `least` apart.
std::vector<double> ticks(double low, double high, int count, double least = 0);

// A unit of numbers in a drawing. byte_unit(most) and second_unit(most) return the unit in which numbers up to `most`
// are easy to read.
struct Unit {
  double size = 1;
  double least = 0;  // smallest distance between two numbers on an axis, in units
  std::string name;
  std::string text(double value) const;  // with the name: "1.25 GiB"
};
Unit byte_unit(double most);            // B to TiB
Unit second_unit(double most);          // ms; from ten seconds on, s
std::string time_text(double seconds);  // "12.3 ms", "1.73 s"
std::string count_text(double count);   // "950", "12.3 k", "124.44 M"

// The part of a drawing that shows data.
struct Plot {
  Box box;
  double x_low = 0, x_high = 1, y_low = 0, y_high = 1;
  Point at(double x, double y) const;
};

// Both functions draw an axis with numbers in `unit`. The y axis has lines across the plot, the x axis ticks under it.
void draw_y_axis(Svg &svg, const Plot &plot, const Unit &unit);
void draw_x_axis(Svg &svg, const Plot &plot, const Unit &unit, const std::string &label);

inline constexpr const char *kInk = "#222222", *kFaint = "#d9d9d9";

}  // namespace tool
