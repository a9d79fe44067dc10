#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "base/checksum.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/processor.h"
#include "base/threads.h"
#include "measure/kept_rates.h"
#include "measure/measure.h"

namespace protrain::measure {

namespace {

// The version of the method by which profiles are measured. The names of files are hashes of this version, the device
// and more. So a profile that was measured by another method is not found.
constexpr int kMethod = 5;

constexpr KeptRate kDiskRates[] = {{"disk_read", &profile::Profile::disk_read},
                                   {"disk_write", &profile::Profile::disk_write},
                                   {"disk_both_ways", &profile::Profile::disk_both_ways},
                                   {"compute_beside_disk", &profile::Profile::compute_beside_disk, true},
                                   {"disk_beside_compute", &profile::Profile::disk_beside_compute, true}};
constexpr KeptRate kOptimizerRates[] = {{"device_optimizer", &profile::Profile::device_optimizer},
                                        {"host_optimizer", &profile::Profile::host_optimizer}};

// Returns the directory's lock. Waits for it if needed, because other sessions hold it only for milliseconds.
std::unique_ptr<DirectoryLock> locked(const std::string &directory) {
  constexpr int kTries = 100;
  for (int i = 1;; ++i) try {
      return std::make_unique<DirectoryLock>(directory);
    } catch (const Error &error) {
      if (error.code != Code::busy || i == kTries) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

// Replaces `profile` by `kept`, except for the fields that describe the machine. These fields keep their present
// values.
void take_times(profile::Profile &profile, const profile::Profile &kept) {
  const profile::Profile described = profile;
  profile = kept;
  profile.name = described.name;
  profile.device_memory = described.device_memory;
  profile.device_reserve = described.device_reserve;
  profile.host_memory = described.host_memory;
  profile.host_reserve = described.host_reserve;
  profile.disk_memory = described.disk_memory;
  profile.kind = described.kind;
  profile.shares_memory = described.shares_memory;
  profile.shares_cores = described.shares_cores;
}

// Returns the bytes of the optimizer's state for each weight.
double state_bytes(const backend::Optimizer &optimizer) {
  double bytes = 0;
  for (const graph::OptimizerArray &array : optimizer.state()) bytes += array.bytes_each();
  return bytes;
}

std::string path_in(const std::string &directory, const char *what, const std::string &key) {
  return fmt::format("{}/{}-{}.json", directory, what, digest_of(key).substr(0, 16));
}

}  // namespace

std::string default_cache_directory() {
  // Reads the environment. A program must not change it while it creates a session, because the C library does not lock
  // the environment.
  if (const char *cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return fmt::format("{}/protrain", cache);
  if (const char *home = std::getenv("HOME"); home != nullptr && *home == '/')
    return fmt::format("{}/.cache/protrain", home);
  return "";
}

Cache::Cache(std::string directory, const backend::DeviceInfo &device, const backend::Optimizer &optimizer,
             const std::string &disk_directory, const Neighbours &neighbours) {
  if (directory.empty()) return;
  // The description of a GPU lacks the host's processor, which runs the host's updates. `side_by_side` is the number of
  // the device's threads that can run at the same time.
  const int side_by_side = std::min(device.threads, available_threads());
  const std::string key =
      fmt::format("{} {} {} {} {} {} of {} {} of {}", PROTRAIN_VERSION, kMethod, device.description, device.libraries,
                  processor_name(), side_by_side, device.threads, neighbours.place, neighbours.ranks);
  path_ = path_in(directory, "profile", key);
  variants_path_ = path_in(directory, "algorithms", fmt::format("{} {}", PROTRAIN_VERSION, device.description));
  const auto disk = file_system_of(disk_directory);
  disk_ = KeptRates(disk ? path_in(directory, "disk", fmt::format("{} {}", key, *disk)) : "", kDiskRates);
  const std::string of_optimizer = fmt::format("{} {} {}", key, optimizer.name(), state_bytes(optimizer));
  optimizer_ = KeptRates(path_in(directory, "optimizer", of_optimizer), kOptimizerRates);
}

void Cache::load(profile::Profile &profile, bool idle) const {
  if (path_.empty()) return;
  if (const auto kept = kept_device(); kept && !is_doubtful(kept->waited, path_, idle)) take_times(profile, *kept);
  for (const KeptRates *rates : {&disk_, &optimizer_}) rates->load(profile, idle);
  profile.variants = kept_variants();
}

void Cache::store(profile::Profile &profile, const profile::Profile &loaded) const {
  try {
    require(keeps(), Code::path, "profile", "nothing is kept");
    const std::string directory = directory_of(path_);
    if (!identity_of(directory_of(directory))) create_directory(directory_of(directory));
    create_directory(directory);
    const auto lock = locked(directory);
    store_variants(profile.variants);
    store_device(profile);
    for (const KeptRates *rates : {&disk_, &optimizer_}) rates->store(profile, loaded);
  } catch (const Error &) {
    profile.variants = kept_variants();
  }
}

// Stores which algorithm each kernel uses. A choice that another session stored first replaces the one in `variants`.
void Cache::store_variants(Variants &variants) const {
  const Variants kept = kept_variants();
  for (const auto &[signature, variant] : kept) variants[signature] = variant;
  if (variants != kept) write_text(variants_path_, Json{{"variants", variants}}.dump(1));
}

// Stores everything but what has a file of its own. If the file has the same measurements already, it is left as it is,
// and so keeps its age. If the file's measurements and these began with the same rates, two sessions have added to them
// at the same time. Then the file gets the kernels of both, and the higher of their rates of compute, because kernels
// only raise these rates (Measurement::derive_flops).
void Cache::store_device(profile::Profile profile) const {
  disk_.clear(profile);
  profile.disk_memory = 0;
  profile.variants.clear();
  if (const auto kept = kept_device()) {
    if (kept->device_bandwidth == profile.device_bandwidth) {
      profile.kernels.insert(kept->kernels.begin(), kept->kernels.end());
      profile.fp32_flops = std::max(profile.fp32_flops, kept->fp32_flops);
      profile.bf16_flops = std::max(profile.bf16_flops, kept->bf16_flops);
      profile.waited = std::max(profile.waited, kept->waited);
    }
    profile::Profile now = profile, as_kept = profile;
    take_times(as_kept, *kept);
    now.waited = as_kept.waited;  // it rises alone only where the optimizer was measured, whose own file has it
    for (profile::Profile *each : {&now, &as_kept}) optimizer_.clear(*each);
    if (as_kept == now) return;
  }
  write_text(path_, profile::to_json(profile));
}

std::optional<profile::Profile> Cache::kept_device() const {
  try {
    return profile::from_json(read_text(path_));
  } catch (const Error &) {
    return std::nullopt;
  }
}

Cache::Variants Cache::kept_variants() const {
  Variants kept;
  if (variants_path_.empty()) return kept;
  try {
    const Json json = parse_json(read_text(variants_path_), "variants");
    if (const Json *variants = json.find("variants"); variants != nullptr && variants->members() != nullptr)
      for (const auto &[signature, variant] : *variants->members())
        if (variant.whole() != nullptr) kept[signature] = *variant.whole();
  } catch (const Error &) {
  }
  return kept;
}

}  // namespace protrain::measure
