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
// The cores count as busy if more than kBusy threads for each processor wanted to run in the last minute, on average.
// The limit is above 1, because an earlier session of this library can have kept one thread on each processor.
constexpr double kBusy = 1.25;
constexpr int kIdle = 8;  // cores are idle only if at most one other thread per kIdle processors wants to run now
}  // namespace

ThreadTimes thread_times(const std::string &root) {
  ThreadTimes times;
  std::error_code error;
  const std::filesystem::directory_iterator threads(root + "/proc/self/task", error);
  for (auto thread = begin(threads); !error && thread != end(threads); thread.increment(error)) {
    // A thread's schedstat has three numbers: nanoseconds on a core, nanoseconds of waiting for one, and time slices.
    const std::string text = cgroup::text_of(thread->path().string() + "/schedstat");
    const std::vector<std::string> words = cgroup::words_of(text);
    if (words.size() != 3) continue;
    const auto number = [&](std::size_t i) { return static_cast<std::uint64_t>(parse_integer(words[i]).value_or(0)); };
    times[thread->path().filename().string()] = {number(0), number(1)};
  }
  return times;
}

double share_waited(const ThreadTimes &start, const ThreadTimes &end) {
  double ran = 0, waited = 0;
  for (const auto &[thread, now] : end) {
    const auto before = start.find(thread);
    const CoreTimes then = before != start.end() ? before->second : CoreTimes{};
    ran += static_cast<double>(now.ran) - static_cast<double>(then.ran);
    waited += static_cast<double>(now.waited) - static_cast<double>(then.waited);
  }
  return ran + waited < kLeastSeconds * 1e9 ? 0 : waited / (ran + waited);
}

bool cores_are_idle(int processors, const std::string &root) {
  // /proc/loadavg: the means of 1, 5 and 15 minutes, threads that want to run / all threads, and the last process.
  const std::string text = cgroup::text_of(root + "/proc/loadavg");
  const std::vector<std::string> words = cgroup::words_of(text);
  if (words.size() < 4) return false;
  const std::optional<double> minute = parse_real(words[0]);
  const std::optional<std::int64_t> now = parse_integer(std::string_view(words[3]).substr(0, words[3].find('/')));
  return minute && now && *now - 1 <= processors / kIdle && *minute < kBusy * processors;  // - 1: this thread
}

}  // namespace protrain::measure
