#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/checksum.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "measure/contention.h"
#include "measure/measure.h"

namespace protrain::measure {

namespace {

// The version of the method by which profiles are measured. The name of a profile's file is a hash of this version, the
// device and more. So a profile that was measured by another method is not found.
constexpr int kMethod = 4;

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

// True if the file was written more than a quarter of an hour ago. The load of the machine at that time says nothing
// about its load now.
bool is_old(const std::string &path) {
  std::error_code error;
  const auto written = std::filesystem::last_write_time(path, error);
  return !error && std::filesystem::file_time_type::clock::now() - written > std::chrono::minutes(15);
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

void write(const std::string &path, const std::string &text) {
  FileWriter file(path);
  file.write(text);
  file.commit();
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

Cache::Cache(std::string directory, const backend::DeviceInfo &device, const std::string &disk_directory,
             const Neighbours &neighbours) {
  if (directory.empty()) return;
  const auto disk = identity_of(disk_directory);
  const std::string key =
      fmt::format("{} {} {} {} {} {} of {}", PROTRAIN_VERSION, kMethod, device.description, device.threads,
                  disk ? fmt::format("{}", disk->device) : "none", neighbours.place, neighbours.ranks);
  path_ = fmt::format("{}/profile-{}.json", directory, digest_of(key).substr(0, 16));
  const std::string whose = fmt::format("{} {}", PROTRAIN_VERSION, device.description);
  variants_path_ = fmt::format("{}/algorithms-{}.json", directory, digest_of(whose).substr(0, 16));
}

void Cache::load(profile::Profile &profile, bool idle) const {
  if (path_.empty()) return;
  try {
    const profile::Profile kept = profile::from_json(read_text(path_));
    if (!(kept.waited > kMostWaited && idle && is_old(path_))) take_times(profile, kept);
  } catch (const Error &) {
  }
  profile.variants = kept_variants();
}

void Cache::store(profile::Profile &profile) const {
  try {
    require(keeps(), Code::path, "profile", "nothing is kept");
    const std::string directory = directory_of(path_);
    if (!identity_of(directory_of(directory))) create_directory(directory_of(directory));
    create_directory(directory);
    const auto lock = locked(directory);
    store_variants(profile.variants);
    write(path_, profile::to_json(profile));
  } catch (const Error &) {
    profile.variants = kept_variants();
  }
}

// Stores which algorithm each kernel uses. A choice that another session stored first replaces the one in `variants`.
void Cache::store_variants(Variants &variants) const {
  const Variants kept = kept_variants();
  for (const auto &[signature, variant] : kept) variants[signature] = variant;
  if (variants != kept) write(variants_path_, Json{{"variants", variants}}.dump(1));
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
