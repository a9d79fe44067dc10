// Compares MatMul's kernel with its reference.
#include "backend/kernel_check.h"

namespace protrain::test::matmul_test {
namespace {

TEST(MatMulKernel, RefusesOtherTypes) {
  graph::Node node;
  node.op = "MatMul";
  const Type doubles{DType::f64, {4, 4}};
  EXPECT_THROW(backend::open("cpu", 1)->compile({node, {doubles, doubles}, {doubles}}), Error);
}

}  // namespace
}  // namespace protrain::test::matmul_test
