// Several token files as one source of windows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shuffle.h"
#include "windows.h"

namespace tool {

// Files without weights are one file: the windows of the first come first, and each comes once an epoch. With weights
// the files take turns, so that any thousand windows hold each file's share, and each file starts again after its own
// last window. What the n-th window is follows from n alone, so a run that resumes needs to know nothing but its step.
class Mixture {
 public:
  // `words` are those of --tokens, FILE or FILE=WEIGHT; the other arguments are as for TokenFile and TokenWindows.
  // Throws UsageError for a weight that is not above 0, if some files have a weight and others have none, and for a
  // share below a thousandth.
  Mixture(const std::vector<std::string> &words, const std::string &type, std::int64_t length, bool next,
          std::optional<std::int64_t> separator);

  bool weighted() const { return !turns_.empty(); }
  const TokenFile &file(std::size_t i) const { return files_[i].file(); }
  std::uint64_t count() const;      // windows of all files
  std::uint64_t documents() const;  // of all files; 0 without a separator
  double filled() const;            // the share of the windows' tokens that are the files'

  // Appends the window that is the n-th one taken. Returns the position of its file.
  std::size_t read(std::uint64_t n, const std::optional<Shuffle> &shuffle, WindowRows &rows);

 private:
  // A turn of a file, and how many turns of the same file came before it within a thousand.
  struct Turn {
    std::size_t file;
    std::uint64_t before;
  };
  struct Place {
    std::size_t file;
    std::uint64_t window;
  };

  void take_turns(const std::vector<double> &weights);
  Place place(std::uint64_t n, const std::optional<Shuffle> &shuffle) const;

  std::vector<TokenWindows> files_;
  std::vector<std::uint64_t> shares_;  // of each file in a thousand windows; empty without weights
  std::vector<Turn> turns_;            // a thousand; empty without weights
};

}  // namespace tool
