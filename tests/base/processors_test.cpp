// The caches of the processors that this thread may use, as a system describes them.
#include "base/processors.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "scratch.h"
#include "usable_processors.h"

namespace protrain::processors_test {
namespace {

// Describes a processor's caches below `root`.
class DescribedProcessor {
 public:
  DescribedProcessor(const test::Scratch &root, int id)
      : directory_(root.file("sys/devices/system/cpu/cpu" + std::to_string(id) + "/cache")) {}

  void add(const std::string &level, const std::string &size, const std::string &shared) {
    const std::string cache = directory_ + "/index" + std::to_string(count_++) + "/";
    std::filesystem::create_directories(cache);
    std::ofstream(cache + "level") << level << "\n";
    std::ofstream(cache + "size") << size << "\n";
    std::ofstream(cache + "shared_cpu_list") << shared << "\n";
  }

 private:
  const std::string directory_;
  int count_ = 0;
};

TEST(Caches, OfTheHighestLevelCountOnceWhereProcessorsShareThem) {
  const test::Scratch root;
  for (const int id : test::usable_processors()) {
    DescribedProcessor processor(root, id);
    processor.add("1", "48K", std::to_string(id));
    processor.add("3", "32768K", "0-1023");
    processor.add("2", "1024K", std::to_string(id));
  }
  EXPECT_EQ(cache_bytes(root.path()), 32u << 20);
}

TEST(Caches, CountForEachProcessorThatHasItsOwn) {
  const test::Scratch root;
  const std::set<int> ids = test::usable_processors();
  for (const int id : ids) {
    DescribedProcessor processor(root, id);
    processor.add("1", "32K", std::to_string(id));
    processor.add("2", "512K", std::to_string(id));
  }
  EXPECT_EQ(cache_bytes(root.path()), ids.size() * (512u << 10));
}

TEST(Caches, AreNotKnownWhereTheSystemDoesNotSay) {
  const test::Scratch root;
  EXPECT_EQ(cache_bytes(root.path()), 0u);
  for (const int id : test::usable_processors()) DescribedProcessor(root, id).add("1", "", "");
  EXPECT_EQ(cache_bytes(root.path()), 0u);
}

}  // namespace
}  // namespace protrain::processors_test
