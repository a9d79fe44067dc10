#include <fmt/format.h>

#include <cstdlib>

#include "base/checksum.h"
#include "base/error.h"
#include "base/files.h"
#include "measure/measure.h"

namespace protrain::measure {

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

void Cache::store(const profile::Profile &profile) const {
  if (path_.empty()) return;
  try {
    const std::string directory = directory_of(path_);
    if (!identity_of(directory_of(directory))) create_directory(directory_of(directory));
    create_directory(directory);
    FileWriter file(path_);
    file.write(profile::to_json(profile));
    file.commit();
  } catch (const Error &) {
  }
}

}  // namespace protrain::measure
