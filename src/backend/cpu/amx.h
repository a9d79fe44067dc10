// Products of bfloat16 by the matrix instructions of Intel's processors (AMX), which multiply tiles of 16 rows. oneDNN
// 2.6 uses the instructions too, but is slower: large products took it 1.2 to 1.6 times as long.
//
// The sum of an element of c is one chain of additions in the order of k, whatever tile computes it. So an element's
// bits depend neither on the other rows and columns nor on where a product is cut. Numbers that are too small to be
// normal count as zeros.
#pragma once

#include <cstdint>

#include "backend/cpu/floats.h"
#include "backend/cpu/transpose.h"

namespace protrain::backend::cpu {

// True if the processor has these instructions, the system lets the process use them, and ONEDNN_MAX_CPU_ISA does not
// exclude them.
bool has_amx();

constexpr std::int64_t kAmxRows = 32;     // rows of a panel that are multiplied together
constexpr std::int64_t kAmxColumns = 32;  // columns of sums that are written together

struct AmxOperands {
  ConstRows<bf16> a;
  const bf16 *b;     // packed (packing.h)
  Rows<float> sums;  // each row with room for a multiple of kAmxColumns
};

// Computes sums = a b, or sums += a b. `depth` is the number of columns of a.
void multiply_with_amx(const AmxOperands &at, std::int64_t rows, std::int64_t columns, std::int64_t depth,
                       bool accumulate);

}  // namespace protrain::backend::cpu
