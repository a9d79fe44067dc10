#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "profile/profile.h"

namespace protrain::profile {

namespace {

struct BytesKey {
  const char *name;
  std::uint64_t Profile::*member;
};
constexpr BytesKey kBytes[] = {{"device_memory", &Profile::device_memory},
                               {"host_memory", &Profile::host_memory},
                               {"disk_memory", &Profile::disk_memory},
                               {"device_reserve", &Profile::device_reserve},
                               {"host_reserve", &Profile::host_reserve}};

struct RateKey {
  const char *name;
  double Profile::*member;
  bool always;  // every machine must have this rate
};
constexpr RateKey kRates[] = {{"fp32_flops", &Profile::fp32_flops, true},
                              {"bf16_flops", &Profile::bf16_flops, false},
                              {"device_bandwidth", &Profile::device_bandwidth, true},
                              {"launch_seconds", &Profile::launch_seconds, false},
                              {"sustained", &Profile::sustained, false},
                              {"device_optimizer", &Profile::device_optimizer, true},
                              {"host_optimizer", &Profile::host_optimizer, false},
                              {"upload", &Profile::upload, false},
                              {"download", &Profile::download, false},
                              {"both_ways", &Profile::both_ways, false},
                              {"host_bandwidth", &Profile::host_bandwidth, false},
                              {"disk_read", &Profile::disk_read, false},
                              {"disk_write", &Profile::disk_write, false},
                              {"disk_both_ways", &Profile::disk_both_ways, false},
                              {"link", &Profile::link, false},
                              {"link_seconds", &Profile::link_seconds, false},
                              {"compute_beside_disk", &Profile::compute_beside_disk, false},
                              {"disk_beside_compute", &Profile::disk_beside_compute, false},
                              {"compute_beside_link", &Profile::compute_beside_link, false},
                              {"link_beside_compute", &Profile::link_beside_compute, false},
                              {"waited", &Profile::waited, false}};
constexpr const char *kOthers[] = {"name",         "kind",    "devices",  "shares_memory",
                                   "shares_cores", "kernels", "variants", "scratch"};

void require_known_keys(const Json &json) {
  std::vector<std::string_view> known(std::begin(kOthers), std::end(kOthers));
  for (const BytesKey &key : kBytes) known.emplace_back(key.name);
  for (const RateKey &key : kRates) known.emplace_back(key.name);
  for (const auto &[key, value] : *json.members())
    if (std::ranges::find(known, key) == known.end()) {
      const std::string nearest = nearest_word(key, known);
      fail(Code::arg, "hardware", "a machine has no '{}'{}", printable(key),
           nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
    }
}

std::uint64_t bytes_from(const Json &json, const std::string &key) {
  std::optional<std::uint64_t> bytes;
  if (json.whole() != nullptr) bytes = *json.whole();
  if (json.text() != nullptr) bytes = parse_bytes(*json.text());
  require(bytes.has_value(), Code::format, "hardware", "{} is {}, not a size such as 24GiB", key, json);
  return *bytes;
}

// Reads the scratch of a kernel. Refuses sizes that no device has, because sizes near 2^64 would overflow where buffers
// are laid out.
std::uint64_t scratch_from(const Json &json, const std::string &key) {
  constexpr std::uint64_t kMost = 1ull << 48;
  const std::uint64_t bytes = bytes_from(json, key);
  require(bytes <= kMost, Code::arg, "hardware", "the scratch of {} is {}, more bytes than any device has", key, bytes);
  return bytes;
}

std::uint64_t whole_from(const Json &json, const std::string &key) {
  require(json.whole() != nullptr, Code::format, "hardware", "{} is {}, not a whole number", key, json);
  return *json.whole();
}

double rate_from(const Json &json, const std::string &key) {
  const std::optional<double> rate = json.number();
  require(rate.has_value(), Code::format, "hardware", "{} is {}, not a number", key, json);
  require(std::isfinite(*rate) && *rate >= 0, Code::arg, "hardware", "{} is {}, not a number from 0", key, *rate);
  return *rate;
}

template <typename T>
std::map<std::string, T> by_signature(const Json &json, const char *key, T (*read)(const Json &, const std::string &)) {
  std::map<std::string, T> found;
  const Json *item = json.find(key);
  if (item == nullptr) return found;
  require(item->members() != nullptr, Code::format, "hardware", "{} is no object", key);
  for (const auto &[signature, value] : *item->members()) found[signature] = read(value, signature);
  return found;
}

bool truth(const Json &json, const char *key) {
  const Json *item = json.find(key);
  if (item == nullptr) return false;
  require(item->truth() != nullptr, Code::format, "hardware", "{} is {}, neither true nor false", key, *item);
  return *item->truth();
}

std::string name_in(const Json &json) {
  const Json *item = json.find("name");
  if (item == nullptr) return "unnamed";
  require(item->text() != nullptr, Code::format, "hardware", "name is {}, not a text", *item);
  return printable(*item->text());  // it is shown to people as it is
}

// Returns the kind of device. A description without a kind is of a CPU if device and host share cores, else of a GPU.
DeviceKind kind_in(const Json &json, bool shares_cores) {
  const Json *item = json.find("kind");
  if (item == nullptr) return shares_cores ? DeviceKind::cpu : DeviceKind::gpu;
  const std::string *const name = item->text();
  const auto kind = name != nullptr ? value_named<DeviceKind>(*name, kDeviceKindNames) : std::nullopt;
  require(kind.has_value(), Code::format, "hardware", "kind is {}, neither cpu nor gpu", *item);
  return *kind;
}

void require_machine(const Profile &profile) {
  require(profile.device_memory > 0, Code::arg, "hardware", "the machine's device_memory is not given");
  for (const RateKey &key : kRates)
    require(!key.always || profile.*key.member > 0, Code::arg, "hardware", "the machine's {} is not given", key.name);
  const bool apart = !profile.shares_memory && profile.host_memory > 0;
  require(!apart || (profile.upload > 0 && profile.download > 0 && profile.host_optimizer > 0), Code::arg, "hardware",
          "a machine with host_memory of its own needs upload, download and host_optimizer");
  require(profile.devices >= 1, Code::arg, "hardware", "a machine has at least 1 of devices");
  require(profile.disk_memory == 0 || (profile.disk_read > 0 && profile.disk_write > 0), Code::arg, "hardware",
          "a machine with disk_memory needs disk_read and disk_write");
  for (double share : {profile.compute_beside_disk, profile.disk_beside_compute, profile.compute_beside_link,
                       profile.link_beside_compute, profile.sustained})
    require(share > 0 && share <= 1, Code::arg, "hardware",
            "the speed that something keeps (sustained, compute_beside_disk, ...) is a share, above 0 and at most 1, "
            "not {}",
            share);
  require(profile.waited <= 1, Code::arg, "hardware", "waited is a share of time, at most 1, not {}", profile.waited);
}

Profile profile_from(const Json &json) {
  Profile profile;
  require(json.members() != nullptr, Code::format, "hardware", "a machine is a JSON object");
  require_known_keys(json);
  profile.name = name_in(json);
  profile.shares_memory = truth(json, "shares_memory");
  profile.shares_cores = truth(json, "shares_cores");
  profile.kind = kind_in(json, profile.shares_cores);
  for (const BytesKey &key : kBytes)
    if (const Json *item = json.find(key.name)) profile.*key.member = bytes_from(*item, key.name);
  for (const RateKey &key : kRates)
    if (const Json *item = json.find(key.name)) profile.*key.member = rate_from(*item, key.name);
  if (const Json *devices = json.find("devices")) profile.devices = whole_from(*devices, "devices");
  profile.kernels = by_signature(json, "kernels", rate_from);
  profile.variants = by_signature(json, "variants", whole_from);
  profile.scratch = by_signature(json, "scratch", scratch_from);
  require_machine(profile);
  return profile;
}

}  // namespace

std::string to_json(const Profile &profile) {
  Json json = {{"name", profile.name}};
  for (const BytesKey &key : kBytes) json[key.name] = profile.*key.member;
  json["kind"] = kDeviceKindNames[profile.kind];
  json["devices"] = profile.devices;
  json["shares_memory"] = profile.shares_memory;
  json["shares_cores"] = profile.shares_cores;
  for (const RateKey &key : kRates) json[key.name] = profile.*key.member;
  json["kernels"] = profile.kernels;
  json["variants"] = profile.variants;
  json["scratch"] = profile.scratch;
  return json.dump(1);
}

Profile from_json(const std::string &text) { return profile_from(parse_json(text, "hardware")); }

}  // namespace protrain::profile
