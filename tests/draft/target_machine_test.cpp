// The precisions that a device computes in, and the error for any other precision.
#include "draft/target_machine.h"

#include <gtest/gtest.h>

#include "errors.h"

namespace protrain::draft::target_machine_test {
namespace {

using test::code_of;
using test::error_of;

TEST(Precision, IsThatOfTheDevice) {
  const backend::DeviceInfo device{.name = "gpu:3", .precisions = {DType::f32, DType::bf16}};
  for (const DType precision : device.precisions)
    EXPECT_EQ(code_of([&] { require_precision(device, precision); }), Code::ok) << precision_name(precision);
  const Error error = error_of([&] { require_precision(device, DType::f16); });
  EXPECT_EQ(error.code, Code::unsupported);
  EXPECT_EQ(error.subject, "precision");
  EXPECT_EQ(error.text, "fp16 is not computed on gpu:3, which computes in fp32, bf16");
}

TEST(Precision, IsAnyOfTheThreeOnTheCpu) {
  for (const DType precision : {DType::f32, DType::bf16, DType::f16}) {
    Settings settings;
    settings.precision = precision;
    EXPECT_EQ(code_of([&] { open_device(settings); }), Code::ok) << precision_name(precision);
  }
}

}  // namespace
}  // namespace protrain::draft::target_machine_test
