// manifest.json: what a checkpoint belongs to, and the sizes and checksums of its files. It is written last and holds a
// checksum of itself, so a folder with a sound manifest is a whole checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "state/pieces.h"

namespace protrain::state {

inline constexpr const char *kManifestName = "manifest.json";
inline constexpr const char *kWeightsName = "weights.safetensors";
inline constexpr const char *kOptimizerName = "optimizer.safetensors";
inline constexpr std::uint64_t kManifestLimit = 64 << 20;  // bytes, enough for checkpoints of 25 TB
inline constexpr std::uint64_t kFormatVersion = 1;

struct Manifest {
  std::string optimizer;
  std::map<std::string, std::uint64_t> counters;
  FileRecord weights, optimizer_state;
  bool operator==(const Manifest &) const = default;
};

std::string manifest_text(const Manifest &manifest);

// Code::format if it is no manifest at all, corrupt if it was damaged, version if a later library wrote it. Unknown
// keys are ignored. `file` is for errors.
Manifest parse_manifest(const std::string &text, const std::string &file);

}  // namespace protrain::state
