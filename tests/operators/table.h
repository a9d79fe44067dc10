// docs/operators.md, made from the results of the cases.
#pragma once

#include <string>
#include <vector>

#include "operators/ways.h"

namespace protrain::test {

struct Tried {
  Case given;
  Result result;
};

std::string table_of(const std::vector<Tried> &tried);

}  // namespace protrain::test
