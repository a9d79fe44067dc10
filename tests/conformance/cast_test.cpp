#include <limits>

#include "conformance/contest.h"

namespace protrain::test::cast_test {
namespace {

PROTRAIN_FAMILY(CastKernel);

const DType kTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i64, DType::i32, DType::boolean};

TEST_P(CastKernel, EveryPairOfTypesMatchesTheReference) {
  for (DType from : kTypes)
    for (DType to : kTypes)
      for (const Shape &shape : {Shape{}, Shape{0}, Shape{3, 1031}}) {
        if ((from == DType::f16 || to == DType::f16) && !GetParam()->computes_in(DType::f16)) continue;
        const Array x = is_float(from) ? Array::from_doubles({from, shape}, random_floats(shape, 1, -50, 50).doubles())
                                       : random_integers(shape, 2, from == DType::boolean ? 0 : -50,
                                                         from == DType::boolean ? 2 : 50, from);
        expect_reference({"Cast", {{"to", std::string(name_of(to))}}, {x}});
      }
}

// A file may store any byte for a bool, and kernels must take every byte except 0 as true.
TEST_P(CastKernel, EveryByteOfABoolThatIsNotZeroIsOne) {
  const Array x = Array::dense({DType::boolean, {4}}, {std::byte{0}, std::byte{1}, std::byte{2}, std::byte{255}});
  for (DType to : {DType::f32, DType::bf16, DType::f64, DType::i64, DType::i32, DType::boolean})
    expect_reference({"Cast", {{"to", std::string(name_of(to))}}, {x}});
}

}  // namespace
}  // namespace protrain::test::cast_test
