// MatMul's kernel against its reference.
#include "backend/kernel_check.h"

namespace protrain::test {
namespace {

struct Case {
  Shape a, b;
};

Shape transposed(Shape shape, bool yes) {
  if (yes) std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  return shape;
}

TEST(MatMulKernel, RefusesOtherTypes) {
  graph::Node node;
  node.op = "MatMul";
  const Type doubles{DType::f64, {4, 4}};
  EXPECT_THROW(backend::open("cpu", 1)->compile({node, {doubles, doubles}, {doubles}}), Error);
}

}  // namespace
}  // namespace protrain::test
