// KeptRates: some rates of a profile, kept in a file of their own. They depend on more than the rest of the profile
// does. The rates of the disk, for example, depend on the file system too.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "profile/profile.h"

namespace protrain::measure {

// A rate of a profile, and its name in the file. A share is above 0 and at most 1, any other rate is above 0.
struct KeptRate {
  const char *name;
  double profile::Profile::*member;
  bool is_share = false;
};

class KeptRates {
 public:
  KeptRates() = default;
  // `path` is the file. If it is empty, nothing is kept. `rates` must outlive this object.
  KeptRates(std::string path, std::span<const KeptRate> rates) : path_(std::move(path)), rates_(rates) {}

  // Sets the rates to those of a profile that nobody has measured.
  void clear(profile::Profile &profile) const;
  // Clears the rates. Then sets them to those of the file, unless the file lacks one of them, has one that no machine
  // can have, or is doubtful (see is_doubtful). Changes nothing else in `profile`.
  void load(profile::Profile &profile, bool idle) const;
  // Writes the rates to the file, with Profile::waited. Writes nothing if `profile` lacks one of them, or if the file
  // has the same rates already. In the second case the file keeps its age, and says how the rates were measured. Writes
  // nothing either if `loaded`, which load() has filled, has the same rates: another session may have measured them
  // anew since then.
  void store(const profile::Profile &profile, const profile::Profile &loaded) const;

 private:
  struct Contents {
    std::vector<double> rates;
    double waited = 0;
  };
  std::optional<Contents> read() const;

  std::string path_;
  std::span<const KeptRate> rates_;
};

// True if what a file holds should be measured again. Three conditions must hold together: other processes disturbed
// the measurements, as `waited` says (see Profile::waited), the file is more than a quarter of an hour old, and the
// cores are `idle` now.
bool is_doubtful(double waited, const std::string &path, bool idle);

// Replaces the whole text of a file.
void write_text(const std::string &path, const std::string &text);

}  // namespace protrain::measure
