// Names of folders in the parent directory of checkpoints: step-0000000010 is a complete checkpoint,
// step-0000000010.old is a complete one that a new checkpoint of the same step is about to replace, and
// .step-0000000010-PID-SERIAL.tmp is being written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace protrain::state {

struct Folder {
  std::uint64_t step = 0;
  bool aside = false;  // .old
};

std::string folder_name(const Folder &folder);
std::string temporary_name(std::uint64_t step, unsigned serial);

std::optional<Folder> parse_folder(std::string_view name);
bool is_temporary(std::string_view name);

}  // namespace protrain::state
