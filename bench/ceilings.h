// Ceilings: the most that the processor can do. The speed of kernels is compared with them.
#pragma once

#include "base/threads.h"

namespace protrain::bench {

struct Ceilings {
  double fma = 0;        // float32 operations per second; a fused multiply-add counts as 2
  double bf16_dot = 0;   // the same for bfloat16, by tiles or dot products; 0: the processor has no such instruction
  double bandwidth = 0;  // bytes read and written per second, when adding two arrays that fit no cache
};

// Measures with all members of the team at once. The best of several tries counts. Takes about two seconds.
Ceilings measure_ceilings(Team &team);

}  // namespace protrain::bench
