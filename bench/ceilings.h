// Ceilings: the most that the processor can do with nothing else in the way, as the measure for kernels.
#pragma once

#include "base/threads.h"

namespace protrain::bench {

struct Ceilings {
  double fma = 0;        // float32 operations a second: a fused multiply-add counts for 2
  double bf16_dot = 0;   // the same of bfloat16 pairs summed in float32; 0: the processor has no such instruction
  double bandwidth = 0;  // bytes a second, read and written, of a sum of two arrays that fit no cache
};

// All members of the team work at once; the best of several tries counts, two seconds in all.
Ceilings measure_ceilings(Team &team);

}  // namespace protrain::bench
