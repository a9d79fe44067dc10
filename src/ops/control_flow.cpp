// If, Loop and Scan. passes/canonical replaces each of them by the nodes of its bodies.
#include "ops/control_flow.h"

#include "base/error.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

// Throws Code::unsupported. Canonicalization replaces nodes whose condition or number of iterations is known. In the
// nodes that it leaves, both the work and the types of the results depend on data.
std::vector<Type> infer_nothing_of(const NodeTypes &types) {
  fail(Code::unsupported, types.subject(), "{} depends on data", types.node.op);
}

}  // namespace

Family control_flow_family() {
  return {{.name = "If", .infer = infer_nothing_of, .file_only = true},
          {.name = "Loop", .infer = infer_nothing_of, .optional = {0, 1}, .file_only = true},
          {.name = "Scan", .infer = infer_nothing_of, .file_only = true}};
}

}  // namespace protrain::ops
