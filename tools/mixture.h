// Several token files as one source of windows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shuffle.h"
#include "windows.h"

namespace tool {

// Files without weights are read one after the other, and each window comes once in an epoch. Files with weights take
// turns: any thousand successive windows hold each file's share, and a file starts again after its last window. The
// n-th window depends on n alone, so a run that resumes needs to know only its step.
class Mixture {
 public:
  // `words` are the arguments of --tokens, each FILE or FILE=WEIGHT. The other parameters are those of TokenFile and
  // TokenWindows. Throws UsageError if a weight is not above 0, if only some of the files have a weight, or if a weight
  // is so small that its file would get none of a thousand successive windows.
  Mixture(const std::vector<std::string> &words, const std::string &type, std::int64_t length, bool next,
          std::optional<std::int64_t> separator);

  bool weighted() const { return !turns_.empty(); }
  const TokenFile &file(std::size_t i) const { return files_[i].file(); }
  std::uint64_t count() const;      // windows of all files
  std::uint64_t documents() const;  // of all files; 0 without a separator
  bool separated() const;           // one of the files holds the separator
  double filled() const;            // the share of the windows' places that hold tokens of the files

  // Appends window number `n` of the mixture to `rows`. Returns the index of the file that the window comes from.
  std::size_t read(std::uint64_t n, const std::optional<Shuffle> &shuffle, WindowRows &rows);

 private:
  // Files with weights take a thousand turns in a fixed order, again and again. A Turn is one of the thousand: the next
  // window comes from `file`. `before` is the number of earlier turns, among the thousand, of the same file.
  struct Turn {
    std::size_t file;
    std::uint64_t before;
  };
  struct Place {
    std::size_t file;
    std::uint64_t window;
  };

  void take_turns(std::vector<double> weights);
  Place place(std::uint64_t n, const std::optional<Shuffle> &shuffle) const;

  std::vector<TokenWindows> files_;
  std::vector<std::uint64_t> shares_;  // of each file in a thousand windows; empty without weights
  std::vector<Turn> turns_;            // a thousand; empty without weights
};

}  // namespace tool
