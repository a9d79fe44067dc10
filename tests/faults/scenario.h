// One part of a session's life through the C interface, with a fault somewhere in it. Every call that fails must fail
// with the right code, and must succeed when it is made again; what comes out in the end must be what comes out
// without a fault.
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
  bool cold = false;      // oneDNN keeps no product that it has made ready, and no times of kernels are kept
};

enum class Part : std::uint8_t { check, plan, create, use, save, export_model, resume };
inline constexpr const char *kPartNames[] = {"check", "plan", "create", "use", "save", "export", "resume"};

// The outcome of one run; plain, since it lies in memory that a process shares with the one that forked it.
struct Outcome {
  std::uint64_t calls = 0;  // of the kind that fails, while faults were armed
  bool fired = false, over = false, lost = false;
  bool partly = false;  // the error says that some parameters took the step and others did not
  int code = 0;         // of the call that failed; 0: none did
  char stage[32] = "", text[400] = "";
  char problem[600] = "";                        // what the run proves wrong; "": nothing
  std::uint64_t result = 0;                      // a hash of losses, parameters and files
  int blocks = 0, descriptors = 0, threads = 0;  // left behind
};

// Where files of one run may lie: what is in `origin` is copied to `at`.
struct Place {
  std::string origin, at;
};

// The run, in this process; `sites` as arm() has them.
void run(const Model &model, Part part, const Place &place, const Fault &fault, std::uint64_t *sites, Outcome &outcome);

// Makes what runs find when they begin: a checkpoint and an export of another training, and the times of kernels.
void furnish(const Model &model, const std::string &origin);

}  // namespace protrain::test
