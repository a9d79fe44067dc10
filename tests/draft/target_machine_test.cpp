// The machine that a draft is made for: the precisions that it computes in, and the rates that sessions have kept.
#include "draft/target_machine.h"

#include <gtest/gtest.h>

#include "errors.h"
#include "measure/described_device.h"
#include "scratch.h"

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

// The optimizer's rates have a file of their own, so another session may have measured them.
TEST(LocalMachine, HasAHostWhoseMemoryIsAtLeastAsFastAsTheOptimizerThatWorksInIt) {
  const test::Scratch scratch;
  profile::Profile kept = profile::known_machine("rtx3090");
  kept.host_optimizer = 2 * kept.host_bandwidth;
  test::DescribedDevice device(kept);
  const backend::Optimizer optimizer;
  measure::Cache(scratch.path(), device.info(), optimizer, "").store(kept);
  Settings settings;
  settings.profile_dir = scratch.path();
  run::Kernels kernels(device);
  const Log log;
  const profile::Profile profile = LocalMachine(device, kernels, settings, log).profile({}, optimizer);
  EXPECT_EQ(profile.device_bandwidth, kept.device_bandwidth) << "nothing was measured";
  EXPECT_EQ(profile.host_optimizer, kept.host_optimizer);
  EXPECT_EQ(profile.host_bandwidth, kept.host_optimizer);
}

}  // namespace
}  // namespace protrain::draft::target_machine_test
