// The table of CPU kernels: operator -> factory.
#include <algorithm>
#include <iterator>

#include "backend/cpu/kernel.h"
#include "backend/kernel_table.h"

namespace protrain::backend {

namespace {
struct Row {
  std::string_view op;
  Factory make;
};

#define PROTRAIN_ROW(OP, MAKE) {OP, MAKE},
constexpr Row kRows[] = {PROTRAIN_KERNELS(PROTRAIN_ROW)};
#undef PROTRAIN_ROW
}  // namespace

Factory find_kernel(std::string_view op) {
  const Row *row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row &r) { return r.op == op; });
  return row == std::end(kRows) ? nullptr : row->make;
}

}  // namespace protrain::backend
