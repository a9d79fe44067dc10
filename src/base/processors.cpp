#include "base/processors.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <string_view>

#include "base/cgroup.h"
#include "base/text.h"

// OpenMP's functions. A process may lack them, because only the backend for the host's processor needs OpenMP.
extern "C" {
[[gnu::weak]] int omp_get_proc_bind();  // 0: threads are not bound
[[gnu::weak]] int omp_get_num_places();
[[gnu::weak]] int omp_get_place_num_procs(int place);
[[gnu::weak]] void omp_get_place_proc_ids(int place, int *ids);
}

namespace protrain {

namespace {

constexpr int kMostProcessors = 1 << 16;  // more than Linux supports; a mask of them fits on any stack

// Returns the processors that the scheduler lets the calling thread use.
std::set<int> scheduled_processors() {
  std::set<int> ids;
  // The kernel's mask may be wider than cpu_set_t.
  for (int processors = 1024; processors <= kMostProcessors; processors *= 4) {
    cpu_set_t *mask = CPU_ALLOC(processors);
    if (!mask) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(processors);
    const bool known = sched_getaffinity(0, bytes, mask) == 0;
    for (int id = 0; known && id < processors; ++id)
      if (CPU_ISSET_S(static_cast<std::size_t>(id), bytes, mask)) ids.insert(id);
    CPU_FREE(mask);
    if (known) break;
  }
  return ids;
}

// Returns the processors of each of OpenMP's places. Returns none if OpenMP binds no threads.
std::vector<std::set<int>> places() {
  std::vector<std::set<int>> all;
  const bool has_openmp = omp_get_proc_bind != nullptr && omp_get_num_places != nullptr &&
                          omp_get_place_num_procs != nullptr && omp_get_place_proc_ids != nullptr;
  if (!has_openmp || omp_get_proc_bind() == 0) return all;
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> ids(static_cast<std::size_t>(std::max(0, omp_get_place_num_procs(place))));
    if (!ids.empty()) omp_get_place_proc_ids(place, ids.data());
    std::erase_if(ids, [](int id) { return id < 0 || id >= kMostProcessors; });
    all.emplace_back(ids.begin(), ids.end());
  }
  return all;
}

// Lets a thread use these processors only. `ids` is not empty and in order.
void bind(pthread_t thread, std::span<const int> ids) noexcept {
  std::array<unsigned long, kMostProcessors / (8 * sizeof(unsigned long))> mask{};
  auto *set = reinterpret_cast<cpu_set_t *>(mask.data());
  const std::size_t bytes = CPU_ALLOC_SIZE(ids.back() + 1);
  for (const int id : ids) CPU_SET_S(static_cast<std::size_t>(id), bytes, set);
  pthread_setaffinity_np(thread, bytes, set);
}

// A cache of one processor. Processors that share it name it alike.
struct SharedCache {
  std::uint64_t level = 0;
  std::uint64_t bytes = 0;
  std::string name;
};

SharedCache largest_cache(const std::string &directory) {
  SharedCache largest;
  for (int index = 0;; ++index) {
    const std::string cache = fmt::format("{}/index{}/", directory, index);
    const auto level = cgroup::number_in(cache + "level");
    if (!level) return largest;
    const std::string size = cgroup::text_of(cache + "size");  // "32768K"
    const auto kib = parse_integer(std::string_view(size).substr(0, size.find('K')));
    if (kib.value_or(0) > 0 && *level > largest.level)
      largest = {*level, static_cast<std::uint64_t>(*kib) << 10, cgroup::text_of(cache + "shared_cpu_list")};
  }
}

}  // namespace

Processors::Processors() {
  const std::set<int> scheduled = scheduled_processors();
  const std::vector<std::set<int>> bound = places();
  const auto holds_all = [&](const std::set<int> &place) { return std::ranges::includes(place, scheduled); };
  are_places_ = !scheduled.empty() && std::ranges::any_of(bound, holds_all);
  std::set<int> ids = scheduled;
  if (are_places_)
    for (const std::set<int> &place : bound) ids.insert(place.begin(), place.end());
  ids_.assign(ids.begin(), ids.end());
}

void Processors::give_to(pthread_t thread) const noexcept {
  if (are_places_) bind(thread, ids_);
}

void Processors::give_one_to(pthread_t thread, int index) const noexcept {
  if (!ids_.empty()) bind(thread, std::span(ids_).subspan(static_cast<std::size_t>(index), 1));
}

int Processors::here() const noexcept {
  const int id = sched_getcpu();
  const auto found = std::ranges::lower_bound(ids_, id);
  return found != ids_.end() && *found == id ? static_cast<int>(found - ids_.begin()) : -1;
}

std::uint64_t cache_bytes(const std::string &root) {
  std::map<std::string, std::uint64_t> caches;
  for (const int id : scheduled_processors()) {
    const SharedCache largest = largest_cache(fmt::format("{}/sys/devices/system/cpu/cpu{}/cache", root, id));
    caches[largest.name] = largest.bytes;
  }
  std::uint64_t bytes = 0;
  for (const auto &[name, each] : caches) bytes += each;
  return bytes;
}

}  // namespace protrain
