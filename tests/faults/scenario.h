// Runs one part of a session's life through the C interface, with a fault somewhere in it. A call that fails must give
// the right code. If the session is still usable, the call must succeed when it is repeated. The final result must then
// be the same as without a fault, unless the error says that only some parameters took the step.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "faults/faults.h"

namespace protrain::test {

struct Model {
  const char *name, *file;
  std::vector<std::pair<std::string, std::string>> options;
  const char *plan = "";  // the text of a plan file
  bool cold = false;      // oneDNN's cache is off, and no kernel times are stored
  bool adapts = false;    // the options ask for adapters
  int batches = 1;        // of a step: the option accumulation
};
inline void PrintTo(const Model &model, std::ostream *out) { *out << model.name; }  // GoogleTest calls it

enum class Part : std::uint8_t { check, plan, create, use, trace, sum, adapt, save, export_model, resume };
inline constexpr const char *kPartNames[] = {"check", "plan",  "create", "use",    "trace",
                                             "sum",   "adapt", "save",   "export", "resume"};

// The outcome of one run. It is plain data, because a child process shares this memory with its parent.
struct Outcome {
  std::uint64_t calls = 0;  // number of calls of the failing kind while faults were armed
  bool fired = false, over = false, lost = false;
  bool partly = false;  // the error says that some parameters took the step and others did not
  int code = 0;         // the failed call's code; 0: none failed
  char stage[32] = "", text[400] = "";
  char problem[600] = "";                        // the first violated expectation; "": none
  std::uint64_t result = 0;                      // a hash of losses, parameters and files
  int blocks = 0, descriptors = 0, threads = 0;  // left behind
};

// The folders for the files of one run. The contents of `origin` are copied to `at`.
struct Place {
  std::string origin, at;
};

// Makes one run in this process, and notes what happened in `outcome`. Hands `fault` and `sites` to arm().
void run(const Model &model, Part part, const Place &place, const Fault &fault, std::uint64_t *sites, Outcome &outcome);

// Makes the files that runs start with: a checkpoint and an export of an earlier training, and kernel times.
void furnish(const Model &model, const std::string &origin);

}  // namespace protrain::test
