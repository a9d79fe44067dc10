// The name of the processor, in the forms that systems write it.
#include "base/processor.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "scratch.h"

namespace protrain::processor_test {
namespace {

std::string name_in(const std::string &cpuinfo) {
  const test::Scratch root;
  std::filesystem::create_directory(root.file("proc"));
  std::ofstream(root.file("proc/cpuinfo")) << cpuinfo;
  return processor_name(root.path());
}

TEST(Processor, HasTheNameOfItsModel) {
  EXPECT_EQ(name_in("processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 17\n"
                    "model name\t: AMD EPYC 9654 96-Core Processor\nstepping\t: 1\n\n"
                    "processor\t: 1\nmodel name\t: another\n"),
            "AMD EPYC 9654 96-Core Processor");
}

TEST(Processor, HasNumbersOnArm) {
  const std::string text =
      "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\n"
      "CPU part\t: 0xd40\nCPU revision\t: 1\n";
  EXPECT_EQ(name_in(text), "implementer 0x41, part 0xd40, variant 0x1");
}

TEST(Processor, IsACpuWhereTheSystemDoesNotSay) {
  for (const char *text : {"", "\n", "model name\n", "model name\t:\n", "model\t: 17\n", "CPU part\t: 0xd40\n"})
    EXPECT_EQ(name_in(text), "cpu") << text;
  EXPECT_EQ(processor_name("/no/such/root"), "cpu");
  EXPECT_FALSE(processor_name().empty());
}

}  // namespace
}  // namespace protrain::processor_test
