// The name of the machine's processor.
#pragma once

#include <string>

namespace protrain {

// Returns the name that /proc/cpuinfo gives: "AMD EPYC 9654 96-Core Processor". An ARM processor has numbers instead of
// a name: "implementer 0x41, part 0xd40, variant 0x1". Returns "cpu" if there is neither. `root` is the directory above
// /proc: "" except in tests.
std::string processor_name(const std::string &root = "");

}  // namespace protrain
