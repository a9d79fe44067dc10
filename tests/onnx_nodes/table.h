// Makes docs/operators.md from the results of the cases.
#pragma once

#include <string>
#include <vector>

#include "onnx_nodes/ways.h"

namespace protrain::test {

struct CaseResult {
  Case given;
  Result result;
};

std::string table_of(const std::vector<CaseResult> &results);

}  // namespace protrain::test
