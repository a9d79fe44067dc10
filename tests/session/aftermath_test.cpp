// An error carries Facts about what it has touched (base/error.h). The Facts decide the Aftermath: the state in which
// the error leaves the session.
#include "session/aftermath.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace protrain::session::aftermath_test {
namespace {

template <typename Exception>
Aftermath after(const Exception &exception) {
  try {
    throw exception;
  } catch (...) {
    return aftermath_of_exception();
  }
}

TEST(Aftermath, OfNoFactIsNothing) {
  EXPECT_EQ(aftermath_of({}), Aftermath::unchanged);
  EXPECT_EQ(after(Error(Code::io, "disk", "full")), Aftermath::unchanged);
}

TEST(Aftermath, OfWhatWasTouchedIsAStepToBeginAnew) {
  EXPECT_EQ(aftermath_of({.sums_touched = true}), Aftermath::half_applied);
  EXPECT_EQ(aftermath_of({.state_touched = true}), Aftermath::half_applied);
  EXPECT_EQ(after(Error(Code::device, "adder", "it cannot count", {.state_touched = true})), Aftermath::half_applied);
}

TEST(Aftermath, OfWhatNobodyCanTellIsALostSession) {
  EXPECT_EQ(aftermath_of({.state_broken = true}), Aftermath::lost);
  EXPECT_EQ(aftermath_of({.device_gone = true}), Aftermath::lost);
  EXPECT_EQ(aftermath_of({.sums_touched = true, .state_touched = true, .device_gone = true}), Aftermath::lost);
}

TEST(Aftermath, OfForeignExceptionsIsLostButForLackOfMemory) {
  EXPECT_EQ(after(std::bad_alloc()), Aftermath::unchanged);
  EXPECT_EQ(after(std::out_of_range("at")), Aftermath::lost);
  EXPECT_EQ(after(7), Aftermath::lost);
}

}  // namespace
}  // namespace protrain::session::aftermath_test
