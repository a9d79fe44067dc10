#include "measure/contention.h"

#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/cgroup.h"
#include "base/text.h"

namespace protrain::measure {

namespace {
constexpr double kBusy = 1.25;  // this many threads for each processor, as a mean of the last minute, are not few
}  // namespace

CoreTimes core_times(const std::string &root) {
  CoreTimes all;
  std::error_code error;
  const std::filesystem::directory_iterator threads(root + "/proc/self/task", error);
  for (auto thread = begin(threads); !error && thread != end(threads); thread.increment(error)) {
    // A thread's schedstat has three numbers: nanoseconds on a core, nanoseconds of waiting for one, and time slices.
    const std::string text = cgroup::text_of(thread->path().string() + "/schedstat");
    const std::vector<std::string> words = cgroup::words_of(text);
    if (words.size() != 3) continue;
    all.ran += static_cast<std::uint64_t>(parse_integer(words[0]).value_or(0));
    all.waited += static_cast<std::uint64_t>(parse_integer(words[1]).value_or(0));
  }
  return all;
}

double share_waited(const CoreTimes &start, const CoreTimes &end) {
  // Threads that have ended are no longer counted, so a sum may have shrunk.
  const auto since = [](std::uint64_t from, std::uint64_t to) {
    return to > from ? static_cast<double>(to - from) : 0;
  };
  const double ran = since(start.ran, end.ran), waited = since(start.waited, end.waited);
  return ran + waited < kLeastSeconds * 1e9 ? 0 : waited / (ran + waited);
}

bool cores_are_idle(int processors, const std::string &root) {
  // /proc/loadavg: the means of 1, 5 and 15 minutes, threads that want to run / all threads, and the last process.
  const std::string text = cgroup::text_of(root + "/proc/loadavg");
  const std::vector<std::string> words = cgroup::words_of(text);
  if (words.size() < 4) return false;
  const std::optional<double> minute = parse_real(words[0]);
  const std::optional<std::int64_t> now = parse_integer(std::string_view(words[3]).substr(0, words[3].find('/')));
  return minute && now && *now <= 1 && *minute < kBusy * processors;  // the one is this thread
}

}  // namespace protrain::measure
