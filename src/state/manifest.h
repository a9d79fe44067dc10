// manifest.json: the optimizer and the counters of a checkpoint, and the sizes and checksums of its files. It is
// written last and holds a checksum of itself, so a folder with a sound manifest is a whole checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/shape.h"
#include "state/checkpoint.h"
#include "state/pieces.h"

namespace protrain::state {

inline constexpr const char *kManifestName = "manifest.json";
inline constexpr std::uint64_t kManifestLimit = 64 << 20;  // bytes, enough for checkpoints of 25 TB
// The newest version of the format. A checkpoint of version 1 has one part. A checkpoint of version 2 has several
// parts, and its manifest holds the parameters' shapes.
inline constexpr std::uint64_t kFormatVersion = 2;

// The files of one part of a checkpoint. A checkpoint has one part from each rank, or a single part.
struct PartRecord {
  FileRecord weights, optimizer_state;
  bool operator==(const PartRecord &) const = default;
};

// Return the name of a file: "weights.safetensors" for a single part, "weights-00002-of-00004.safetensors" for part 1
// of 4.
std::string weights_name(std::size_t part, std::size_t parts);
std::string optimizer_name(std::size_t part, std::size_t parts);

struct Manifest {
  std::string optimizer;
  std::map<std::string, std::uint64_t> counters;
  std::vector<PartRecord> parts;
  std::map<std::string, Shape> shapes;  // of the parameters, if there are several parts
  bool operator==(const Manifest &) const = default;

  const Shape *shape_of(const std::string &parameter) const;  // nullptr if there is none
};

std::string manifest_text(const Manifest &manifest);

// Parses a manifest. Code::format if the text is no manifest at all, corrupt if it was damaged, version if a later
// library wrote it. Unknown keys are ignored. `file` is for errors.
Manifest parse_manifest(const std::string &text, const std::string &file);

// Turn a part's record into a text, and back.
std::string part_text(const PartRecord &part);
PartRecord parse_part(const std::string &text);

}  // namespace protrain::state
