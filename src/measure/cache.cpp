#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "base/checksum.h"
#include "base/error.h"
#include "base/files.h"
#include "measure/measure.h"

namespace protrain::measure {

namespace {

// Others hold it for milliseconds.
std::unique_ptr<DirectoryLock> locked(const std::string &directory) {
  constexpr int kTries = 100;
  for (int i = 1;; ++i) try {
      return std::make_unique<DirectoryLock>(directory);
    } catch (const Error &error) {
      if (error.code != Code::busy || i == kTries) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

}  // namespace

std::string default_cache_directory() {
  // Read where sessions are made; programs that change their environment beside that race with all of the C library.
  if (const char *cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return fmt::format("{}/protrain", cache);
  if (const char *home = std::getenv("HOME"); home != nullptr && *home == '/')
    return fmt::format("{}/.cache/protrain", home);
  return "";
}

Cache::Cache(std::string directory, const backend::DeviceInfo &device, const std::string &disk_directory) {
  if (directory.empty()) return;
  const auto disk = identity_of(disk_directory);
  const std::string key = fmt::format("{} {} {} {}", PROTRAIN_VERSION, device.description, device.threads,
                                      disk ? fmt::format("{}", disk->device) : "none");
  path_ = fmt::format("{}/profile-{}.json", directory, digest_of(key).substr(0, 16));
}

void Cache::load(profile::Profile &profile) const {
  if (path_.empty()) return;
  try {
    const profile::Profile kept = profile::from_json(read_text(path_));
    const profile::Profile described = profile;
    profile = kept;
    profile.name = described.name;
    profile.device_memory = described.device_memory;
    profile.device_reserve = described.device_reserve;
    profile.host_memory = described.host_memory;
  } catch (const Error &) {
  }
}

void Cache::store(profile::Profile &profile) const {
  try {
    require(keeps(), Code::path, "profile", "nothing is kept");
    const std::string directory = directory_of(path_);
    if (!identity_of(directory_of(directory))) create_directory(directory_of(directory));
    create_directory(directory);
    const auto lock = locked(directory);
    merge(profile);
    FileWriter file(path_);
    file.write(profile::to_json(profile));
    file.commit();
  } catch (const Error &) {
    profile.variants.clear();
  }
}

// What another session has stored since this one has loaded.
void Cache::merge(profile::Profile &profile) const {
  if (!identity_of(path_)) return;
  profile::Profile kept;
  try {
    kept = profile::from_json(read_text(path_));
  } catch (const Error &) {
    return;  // damaged
  }
  for (const auto &[signature, variant] : kept.variants)
    if (const auto own = profile.variants.find(signature); own != profile.variants.end() && own->second != variant) {
      own->second = variant;
      if (kept.kernels.contains(signature)) profile.kernels[signature] = kept.kernels[signature];
    }
  profile.variants.insert(kept.variants.begin(), kept.variants.end());
  profile.kernels.insert(kept.kernels.begin(), kept.kernels.end());
}

}  // namespace protrain::measure
