#include "measure/kept_rates.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "measure/contention.h"

namespace protrain::measure {

namespace {

bool is_possible(const KeptRate &rate, double value) {
  return std::isfinite(value) && value > 0 && (!rate.is_share || value <= 1);
}

std::optional<double> number_in(const Json &json, const char *key) {
  const Json *item = json.find(key);
  return item == nullptr ? std::nullopt : item->number();
}

// True if the file was written more than a quarter of an hour ago. The load of the machine at that time says nothing
// about its load now.
bool is_old(const std::string &path) {
  std::error_code error;
  const auto written = std::filesystem::last_write_time(path, error);
  return !error && std::filesystem::file_time_type::clock::now() - written > std::chrono::minutes(15);
}

}  // namespace

void KeptRates::clear(profile::Profile &profile) const {
  const profile::Profile unmeasured;
  for (const KeptRate &rate : rates_) profile.*rate.member = unmeasured.*rate.member;
}

void KeptRates::load(profile::Profile &profile, bool idle) const {
  clear(profile);
  const std::optional<Contents> kept = read();
  if (!kept || is_doubtful(kept->waited, path_, idle)) return;
  for (std::size_t i = 0; i < rates_.size(); ++i) profile.*rates_[i].member = kept->rates[i];
}

void KeptRates::store(const profile::Profile &profile, const profile::Profile &loaded) const {
  const auto is_loaded = [&](const KeptRate &rate) { return profile.*rate.member == loaded.*rate.member; };
  if (path_.empty() || std::ranges::all_of(rates_, is_loaded)) return;
  Json json = Json::object();
  std::vector<double> values;
  for (const KeptRate &rate : rates_) {
    const double value = profile.*rate.member;
    if (!is_possible(rate, value)) return;
    values.push_back(value);
    json[rate.name] = value;
  }
  if (const std::optional<Contents> kept = read(); kept && kept->rates == values) return;
  json["waited"] = profile.waited;
  write_text(path_, json.dump(1));
}

std::optional<KeptRates::Contents> KeptRates::read() const {
  if (path_.empty()) return std::nullopt;
  try {
    const Json json = parse_json(read_text(path_), "rates");
    Contents contents;
    for (const KeptRate &rate : rates_) {
      const std::optional<double> value = number_in(json, rate.name);
      if (!value || !is_possible(rate, *value)) return std::nullopt;
      contents.rates.push_back(*value);
    }
    const std::optional<double> waited = number_in(json, "waited");
    if (!waited || !(*waited >= 0 && *waited <= 1)) return std::nullopt;
    contents.waited = *waited;
    return contents;
  } catch (const Error &) {
    return std::nullopt;
  }
}

bool is_doubtful(double waited, const std::string &path, bool idle) {
  return waited > kMostWaited && idle && is_old(path);
}

void write_text(const std::string &path, const std::string &text) {
  FileWriter file(path);
  file.write(text);
  file.commit();
}

}  // namespace protrain::measure
