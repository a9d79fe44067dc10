// manifest.json: what a checkpoint is of, and the sizes and checksums of its files. It is written last and holds a
// checksum of itself, so that a folder with a sound manifest is a whole checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "state/pieces.h"

namespace protrain::state {

inline constexpr const char *kManifestName = "manifest.json";
inline constexpr const char *kWeightsName = "weights.safetensors";
inline constexpr const char *kOptimizerName = "optimizer.safetensors";
inline constexpr std::uint64_t kManifestLimit = 64 << 20;  // bytes: enough for checkpoints of 25 TB
inline constexpr std::uint64_t kFormatVersion = 1;

struct Manifest {
  std::string optimizer;
  std::map<std::string, std::uint64_t> counters;
  FileRecord weights, optimizer_state;
  bool operator==(const Manifest &) const = default;
};

std::string manifest_text(const Manifest &manifest);

// Code::format for what is no manifest at all, corrupt for one that was damaged, version for a later one. Keys that
// this version does not know are left alone. `file` is for errors.
Manifest parse_manifest(const std::string &text, const std::string &file);

}  // namespace protrain::state
