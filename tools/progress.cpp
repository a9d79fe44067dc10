// On a terminal, draws a bar at most ten times a second. In a file, writes a line after each twentieth of the steps. If
// steps are slow, also writes a line after a step that ends half a minute or more after the previous line.
#include "progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "clock.h"
#include "svg.h"

namespace tool {

namespace {

constexpr double kBarSeconds = 0.1, kLineSeconds = 30;
constexpr std::uint64_t kLines = 20;
constexpr double kMemory = 0.9;  // weight of the past in the running means

bool can_draw(std::FILE *out) {
  const char *terminal = std::getenv("TERM");
  return isatty(fileno(out)) != 0 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::size_t columns(std::FILE *out) {
  winsize size{};
  return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string clock_text(double seconds) {
  const auto s = static_cast<std::uint64_t>(seconds + 0.5);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace

Progress::Progress(std::FILE *out, std::uint64_t before, std::uint64_t steps, std::string unit, bool may_draw)
    : out_(out),
      before_(before),
      steps_(steps),
      unit_(std::move(unit)),
      bar_(may_draw && can_draw(out)),
      began_(seconds_now()),
      last_shown_(began_) {}

Progress::~Progress() {
  if (drawn_) std::fputc('\n', out_);
  std::fflush(out_);
}

std::string Progress::summary(std::uint64_t done, float loss) const {
  const float shown = std::isnan(loss) ? std::fabs(loss) : loss;  // the sign of a NaN says nothing
  const double between = std::max(0.0, seconds_now() - began_ - all_seconds_) / static_cast<double>(done);
  return fmt::format("step {}/{}  loss {:.4f}  {} {}/s  {} left", before_ + done, before_ + steps_, shown,
                     count_text(step_units_ / std::max(step_seconds_, 1e-9)), unit_,
                     clock_text(static_cast<double>(steps_ - done) * (step_seconds_ + between)));
}

void Progress::draw_bar(std::uint64_t done, const std::string &text) {
  const std::size_t room = columns(out_);
  std::string line = text.substr(0, room - 1);
  if (room > text.size() + 14) {
    const std::size_t width = std::min<std::size_t>(room - text.size() - 5, 40);
    const auto full = static_cast<std::size_t>(static_cast<double>(before_ + done) /
                                               static_cast<double>(before_ + steps_) * static_cast<double>(width));
    line = fmt::format("[{:<{}}] {}", std::string(full, '='), width, text);
  }
  fmt::print(out_, "\r\x1b[K{}", line);
  drawn_ = true;
}

void Progress::say(const std::string &line) {
  fmt::print(out_, "{}{}\n", std::exchange(drawn_, false) ? "\n" : "", line);
  std::fflush(out_);
}

void Progress::step(std::uint64_t done, float loss, double seconds, double units) {
  const double past = done <= 2 ? 0 : kMemory;  // the first step, which warms caches, does not count
  step_seconds_ = past * step_seconds_ + (1 - past) * seconds;
  step_units_ = past * step_units_ + (1 - past) * units;
  all_seconds_ += seconds;
  const double since = seconds_now() - last_shown_;
  const std::uint64_t stride = std::max<std::uint64_t>(steps_ / kLines, 1);
  const bool due = bar_ ? since >= kBarSeconds : since >= kLineSeconds || done % stride == 0;
  if (!due && done != 1 && done != steps_) return;
  last_shown_ = seconds_now();
  if (bar_)
    draw_bar(done, summary(done, loss));
  else
    fmt::print(out_, "{}\n", summary(done, loss));
  std::fflush(out_);
}

}  // namespace tool
