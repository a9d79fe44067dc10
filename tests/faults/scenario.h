// One part of a session's life through the C interface, with a fault somewhere in it. Every call that fails must fail
// with the right code and must succeed when it is made again. The final results must be those of a run without a fault.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "faults/faults.h"

namespace protrain::test {

struct Model {
  const char *name, *file;
  std::vector<std::pair<std::string, std::string>> options;
  const char *plan = "";  // a plan file's text
  bool cold = false;      // oneDNN caches no prepared product, and no kernel times are stored
};

enum class Part : std::uint8_t { check, plan, create, use, save, export_model, resume };
inline constexpr const char *kPartNames[] = {"check", "plan", "create", "use", "save", "export", "resume"};

// The outcome of one run. It is a plain struct, since a process shares its memory with the process that forked it.
struct Outcome {
  std::uint64_t calls = 0;  // calls of the failing kind while faults were armed
  bool fired = false, over = false, lost = false;
  bool partly = false;  // the error says that some parameters took the step and others did not
  int code = 0;         // code of the failed call; 0: none failed
  char stage[32] = "", text[400] = "";
  char problem[600] = "";                        // the mistake that the run proves; "": none
  std::uint64_t result = 0;                      // hash of losses, parameters and files
  int blocks = 0, descriptors = 0, threads = 0;  // left behind
};

// Directories of one run's files: `origin` is copied to `at`.
struct Place {
  std::string origin, at;
};

// Runs in this process; `sites` as in arm().
void run(const Model &model, Part part, const Place &place, const Fault &fault, std::uint64_t *sites, Outcome &outcome);

// Makes the files that runs find: a checkpoint and an export of another training, and the kernels' times.
void furnish(const Model &model, const std::string &origin);

}  // namespace protrain::test
