#include "draft/budget.h"

#include <gtest/gtest.h>

#include "errors.h"
#include "random_plans/random_plan.h"

namespace protrain::draft::budget_test {
namespace {

using plan::Bytes;
using test::code_of;
using test::error_of;
using test::options_with;
using test::Pairs;

constexpr std::uint64_t kGiB = 1ull << 30;

profile::Profile shared_machine() {
  return {.device_memory = 100 * kGiB, .host_memory = 100 * kGiB, .disk_memory = 20 * kGiB, .shares_memory = true};
}

profile::Profile gpu() {
  return {.device_memory = 24 * kGiB,
          .host_memory = 64 * kGiB,
          .disk_memory = 7 * kGiB,
          .device_reserve = kGiB,
          .host_reserve = 2 * kGiB};
}

Budget budget(const profile::Profile &machine, const Pairs &pairs) {
  return budget_of(settings_of(options_with(pairs)), machine);
}

// A twentieth of the free memory stays free, so a session may take 95 of 100 GiB.
constexpr std::uint64_t kFree = 95 * kGiB;

TEST(Budget, IsOneForAllWhereDeviceAndHostShareTheirMemory) {
  EXPECT_TRUE(budget(shared_machine(), {}).shared_memory);
  EXPECT_EQ(budget(shared_machine(), {}).bytes, (Bytes{kFree, 0, 0}));
  EXPECT_TRUE(budget(shared_machine(), {{"memory", "3GiB"}}).shared_memory);
  EXPECT_EQ(budget(shared_machine(), {{"memory", "3GiB"}}).bytes, (Bytes{3 * kGiB, 0, 0}));
}

TEST(Budget, KeepsTwoApartWhereEitherIsGivenAndTheOtherIsWhatIsLeft) {
  EXPECT_FALSE(budget(shared_machine(), {{"device_memory", "10GiB"}}).shared_memory);
  EXPECT_EQ(budget(shared_machine(), {{"device_memory", "10GiB"}}).bytes, (Bytes{10 * kGiB, kFree - 10 * kGiB, 0}));
  EXPECT_EQ(budget(shared_machine(), {{"host_memory", "10GiB"}}).bytes, (Bytes{kFree - 10 * kGiB, 10 * kGiB, 0}));
  EXPECT_EQ(budget(shared_machine(), {{"device_memory", "1GiB"}, {"host_memory", "2GiB"}}).bytes,
            (Bytes{kGiB, 2 * kGiB, 0}));
}

TEST(Budget, LeavesNothingBesideMoreThanThereIs) {
  EXPECT_EQ(budget(shared_machine(), {{"device_memory", "200GiB"}}).bytes, (Bytes{100 * kGiB, 0, 0}));
  EXPECT_EQ(budget(shared_machine(), {{"host_memory", "200GiB"}}).bytes, (Bytes{0, 100 * kGiB, 0}));
  EXPECT_EQ(budget({.device_memory = 50 << 20, .shares_memory = true}, {}).bytes, Bytes{}) << "a process needs some";
}

TEST(Budget, IsAtMostWhatTheMachineHas) {
  EXPECT_EQ(budget(shared_machine(), {{"memory", "1TiB"}}).bytes, (Bytes{100 * kGiB, 0, 0}));
  EXPECT_EQ(budget(gpu(), {{"device_memory", "1TiB"}}).bytes, (Bytes{24 * kGiB, 62 * kGiB, 0}));
}

TEST(Budget, OfADeviceOfItsOwnIsWhatBothMemoriesHaveButTheirReserves) {
  EXPECT_FALSE(budget(gpu(), {}).shared_memory);
  EXPECT_EQ(budget(gpu(), {{"hardware", "h200"}}).bytes, (Bytes{23 * kGiB, 62 * kGiB, 7 * kGiB}));
  EXPECT_EQ(budget(gpu(), {{"device_memory", "5GiB"}}).bytes, (Bytes{5 * kGiB, 62 * kGiB, 0}));
  EXPECT_EQ(budget(gpu(), {{"host_memory", "5GiB"}}).bytes, (Bytes{23 * kGiB, 5 * kGiB, 0}));
}

TEST(Budget, OfOneMemoryContradictsTwo) {
  for (const char *key : {"device_memory", "host_memory"}) {
    const Error error = error_of([&] { budget(shared_machine(), {{"memory", "1GiB"}, {key, "1GiB"}}); });
    EXPECT_EQ(error.code, Code::arg) << key;
    EXPECT_EQ(error.subject, "memory") << key;
  }
  EXPECT_EQ(code_of([] { budget(gpu(), {{"memory", "1GiB"}}); }), Code::arg) << "they have their own on this machine";
}

TEST(Budget, OfTheDiskNeedsADirectoryOrAMachineOnPaper) {
  EXPECT_EQ(budget(shared_machine(), {}).bytes[Tier::disk], 0u);
  EXPECT_EQ(budget(shared_machine(), {{"disk_memory", "1GiB"}, {"offload_dir", "."}}).bytes[Tier::disk], kGiB);
  EXPECT_EQ(budget(shared_machine(), {{"offload_dir", "."}}).bytes[Tier::disk], 19 * kGiB) << "a twentieth stays free";
  EXPECT_EQ(budget(gpu(), {{"hardware", "h200"}, {"disk_memory", "1GiB"}}).bytes[Tier::disk], kGiB);
  EXPECT_EQ(budget(gpu(), {{"hardware", "h200"}}).bytes[Tier::disk], 7 * kGiB);
}

void require_budget_of(const profile::Profile &machine, const Pairs &pairs, const Bytes &needed) {
  require_budget(settings_of(options_with(pairs)), machine, needed);
}

TEST(RequiredBudget, IsKeptToTheByte) {
  const Pairs pairs = {{"device_memory", "100"}, {"host_memory", "200"}, {"disk_memory", "300"}, {"offload_dir", "."}};
  require_budget_of(shared_machine(), pairs, {100, 200, 300});
  const PerTier<std::pair<const char *, const char *>> more = {
      {{{"device_memory", "101"}, {"host_memory", "201"}, {"disk_memory", "301"}}}};
  for (const Tier t : kTiers) {
    Bytes needed = {100, 200, 300};
    ++needed[t];
    const Error error = error_of([&] { require_budget_of(shared_machine(), pairs, needed); });
    EXPECT_EQ(error.code, Code::budget);
    EXPECT_EQ(error.subject, more[t].first);
    EXPECT_NE(error.text.find(more[t].second), std::string::npos) << error.text;
  }
  require_budget_of(shared_machine(), {{"memory", "100"}}, {100, 0, 0});
  EXPECT_EQ(code_of([] { require_budget_of(shared_machine(), {{"memory", "100"}}, {101, 0, 0}); }), Code::budget);
}

TEST(RequiredBudget, IsWhatTheMachineHasWhateverOptionsSay) {
  EXPECT_EQ(code_of([] {
              require_budget_of(shared_machine(), {}, {60 * kGiB, 60 * kGiB, 0});
            }),
            Code::budget)
      << "both lie in one memory";
  require_budget_of(gpu(), {}, {20 * kGiB, 60 * kGiB, 0});
  EXPECT_EQ(code_of([] { require_budget_of(gpu(), {}, {25 * kGiB, 0, 0}); }), Code::budget);
  EXPECT_NE(code_of([] { require_budget_of(shared_machine(), {}, {~0ull, ~0ull, 0}); }), Code::ok);
}

TEST(RequiredBudget, OfTheDiskIsRefusedWithoutADirectory) {
  const Error error = error_of([] { require_budget_of(shared_machine(), {}, {1, 1, 1}); });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_EQ(error.subject, "offload_dir");
}

}  // namespace
}  // namespace protrain::draft::budget_test
