#include "mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "handles.h"

namespace tool {

namespace {

constexpr std::uint64_t kTurns = 1000;

struct WeightedFile {
  std::string path;
  std::optional<double> weight;
};

// Splits FILE=WEIGHT. A path may contain '=' itself, so a weight is only a number after the last '=' of the word.
WeightedFile weighted_file(const std::string &word) {
  const std::size_t equals = word.rfind('=');
  if (equals == std::string::npos || equals + 1 == word.size()) return {word, {}};
  char *end = nullptr;
  const double weight = std::strtod(word.c_str() + equals + 1, &end);
  if (*end != '\0') return {word, {}};
  if (!std::isfinite(weight) || weight <= 0)
    throw UsageError(fmt::format("--tokens {}: a weight is a number above 0", word));
  return {word.substr(0, equals), weight};
}

}  // namespace

Mixture::Mixture(const std::vector<std::string> &words, const std::string &type, std::int64_t length, bool next,
                 std::optional<std::int64_t> separator) {
  std::vector<double> weights;
  for (const std::string &word : words) {
    const WeightedFile file = weighted_file(word);
    if (file.weight) weights.push_back(*file.weight);
    files_.emplace_back(TokenFile(file.path, type), length, next, separator);
  }
  if (weights.empty()) return;
  if (weights.size() != files_.size()) throw UsageError("either all files of --tokens have a weight, or none");
  take_turns(std::move(weights));
}

// Rounds each file's share to thousandths: up for the shares with the largest remainders, down for all others. Then
// gives each of the thousand turns to the file that is furthest behind its share.
void Mixture::take_turns(std::vector<double> weights) {
  const double largest = std::ranges::max(weights);
  for (double &weight : weights) weight /= largest;  // so that the sum is finite
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::pair<double, std::size_t>> remainders;
  std::uint64_t left = kTurns;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double share = weights[i] / sum * kTurns;
    shares_.push_back(static_cast<std::uint64_t>(share));
    left -= shares_[i];
    remainders.emplace_back(std::floor(share) - share, i);
  }
  std::sort(remainders.begin(), remainders.end());
  for (std::uint64_t i = 0; i < left; ++i) ++shares_[remainders[i].second];
  for (std::size_t i = 0; i < shares_.size(); ++i)
    if (shares_[i] == 0)
      throw UsageError(fmt::format("--tokens {}: its weight is less than a thousandth of all", file(i).path()));

  std::vector<std::uint64_t> had(shares_.size());
  for (std::uint64_t turn = 1; turn <= kTurns; ++turn) {
    const auto behind = [&](std::size_t i) {
      return static_cast<std::int64_t>(turn * shares_[i]) - static_cast<std::int64_t>(kTurns * had[i]);
    };
    std::size_t next = 0;
    for (std::size_t i = 1; i < shares_.size(); ++i)
      if (behind(i) > behind(next)) next = i;
    turns_.push_back({next, had[next]++});
  }
}

std::uint64_t Mixture::count() const {
  return std::accumulate(files_.begin(), files_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const TokenWindows &file) { return sum + file.count(); });
}

std::uint64_t Mixture::documents() const {
  return std::accumulate(files_.begin(), files_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const TokenWindows &file) { return sum + file.documents(); });
}

bool Mixture::separated() const { return std::ranges::any_of(files_, &TokenWindows::separated); }

double Mixture::filled() const {
  double filled = 0, all = 0;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const auto share = static_cast<double>(weighted() ? shares_[i] : files_[i].count());
    filled += share * files_[i].filled();
    all += share;
  }
  return filled / all;
}

Mixture::Place Mixture::place(std::uint64_t n, const std::optional<Shuffle> &shuffle) const {
  if (weighted()) {
    const auto &[file, before] = turns_[n % kTurns];
    return {file, taken(n / kTurns * shares_[file] + before, files_[file].count(), shuffle)};
  }
  Place place = {0, taken(n, count(), shuffle)};
  while (place.window >= files_[place.file].count()) place.window -= files_[place.file++].count();
  return place;
}

std::size_t Mixture::read(std::uint64_t n, const std::optional<Shuffle> &shuffle, WindowRows &rows) {
  const Place at = place(n, shuffle);
  files_[at.file].read(at.window, rows);
  return at.file;
}

}  // namespace tool
