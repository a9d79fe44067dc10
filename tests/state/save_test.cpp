// Loading takes the newest saved checkpoint. A save that fails must change nothing.
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/files.h"
#include "small.h"

namespace protrain::state::save_test {
namespace {

TEST_F(SavedCheckpoint, EveryByteComesBack) {
  EXPECT_EQ(save_step(10), directory_ + "/step-0000000010");
  EXPECT_EQ(load_all(directory_), 10u);
  EXPECT_EQ(load_all(directory_ + "/step-0000000010"), 10u);
  const Checkpoint checkpoint = Checkpoint::open(directory_);
  EXPECT_EQ(checkpoint.path(), directory_ + "/step-0000000010");
  EXPECT_EQ(checkpoint.description().counters, small(10).counters);
  EXPECT_EQ(checkpoint.description().optimizer, "adamw");
}

TEST_F(SavedCheckpoint, ArraysAreLargerThanBuffersAndPieces) {
  Description large = small(1);
  reshape(large.parameters[0], {3, 1'900'001});
  save(directory_, large, reader(1));
  EXPECT_EQ(load_all(directory_, large), 1u);
}

TEST_F(SavedCheckpoint, TensorsAreReadAndWrittenInPartsOfTheBufferAtMost) {
  Description large = small(1);
  reshape(large.parameters[0], {1'900'001});
  std::size_t most = 0;
  save(directory_, large, [&](auto, auto, auto, std::span<std::byte> out) { most = std::max(most, out.size()); });
  Checkpoint::open(directory_).load(large, [&](auto, auto, auto, auto bytes) { most = std::max(most, bytes.size()); });
  EXPECT_LE(most, std::size_t{4} << 20);
}

TEST_F(SavedCheckpoint, ParametersMayStandInAnotherOrder) {
  save_step(1);
  Description reordered = small(1);
  const std::size_t last = reordered.parameters.size() - 1;
  std::swap(reordered.parameters.front(), reordered.parameters.back());
  Checkpoint::open(directory_).load(reordered, [&](std::size_t p, std::size_t a, std::uint64_t at, auto bytes) {
    EXPECT_EQ(bytes.front(), byte_of(1, p == 0 ? last : p == last ? 0 : p, a, at));
  });
}

TEST_F(SavedCheckpoint, TheNewestIsOpenedAndOlderOnesStay) {
  for (std::uint64_t step : {9, 100, 20}) save_step(step);
  EXPECT_EQ(load_all(directory_), 100u);
  for (const char *name : {"step-0000000009", "step-0000000020"}) load_all(directory_ + "/" + name);
}

TEST_F(SavedCheckpoint, OneOfTheSameStepIsReplaced) {
  save_step(5);
  save(directory_, small(5), [](auto, auto, auto, std::span<std::byte> out) { std::ranges::fill(out, std::byte{7}); });
  EXPECT_EQ(entries(), 1u);
  Checkpoint::open(directory_).load(small(5), [](auto, auto, auto, auto bytes) { EXPECT_EQ(bytes[0], std::byte{7}); });
}

TEST_F(SavedCheckpoint, WhatIsOpenSeesNothingOfWhatReplacesIt) {
  save_step(5);
  const Checkpoint before = Checkpoint::open(directory_);
  save(directory_, small(5), reader(6));
  before.load(small(5), Comparison(5));
}

TEST_F(SavedCheckpoint, WhatAKilledSaveLeftIsPassedOverAndRemoved) {
  save_step(3);
  fs::copy(directory_ + "/step-0000000003", directory_ + "/.step-0000000004-77-0.tmp");
  EXPECT_EQ(load_all(directory_), 3u);
  save_step(2);
  EXPECT_EQ(entries(), 2u);
}

// On a file system that cannot swap two names, a save replaces a folder by two renames. The test makes the state
// between the two renames. A load must find the old folder, and the next save of that step must remove it.
TEST_F(SavedCheckpoint, OneThatWasPutAsideIsFoundAndGivesWay) {
  save_step(3);
  fs::rename(directory_ + "/step-0000000003", directory_ + "/step-0000000003.old");
  EXPECT_EQ(load_all(directory_), 3u);
  save_step(2);
  EXPECT_EQ(load_all(directory_), 3u);
  save_step(3);
  EXPECT_EQ(entries(), 2u);
  EXPECT_EQ(load_all(directory_), 3u);
}

TEST_F(SavedCheckpoint, OtherThingsInTheDirectoryAreLeftAlone) {
  put(directory_ + "/notes.txt", "mine");
  fs::create_directory(directory_ + "/.step-mine.tmp");
  fs::create_directory(directory_ + "/step-9999999999");  // without a manifest
  save_step(1);
  EXPECT_EQ(entries(), 4u);
  EXPECT_EQ(load_all(directory_), 1u);
}

TEST_F(SavedCheckpoint, ASaveThatFailsMidwayLeavesTheOlderOneAlone) {
  save_step(1);
  const auto fails_late = [](std::size_t parameter, std::size_t array, std::uint64_t, std::span<std::byte>) {
    if (parameter == 3 && array == 2) fail(Code::io, "disk", "cannot read it");
  };
  for (const std::uint64_t step : {1, 2})
    EXPECT_EQ(error_of([&] { save(directory_, small(step), fails_late); }).subject, "disk");
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(load_all(directory_), 1u);
}

TEST_F(SavedCheckpoint, AFullDiskIsItsOwnCodeAndLeavesTheOlderOneAlone) {
  save_step(1);
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  struct rlimit small_files = before;
  small_files.rlim_cur = 256;
  setrlimit(RLIMIT_FSIZE, &small_files);
  const Error error = error_of([&] { save_step(2); });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(error.code, Code::nospc) << error.text;
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(load_all(directory_), 1u);
}

TEST_F(SavedCheckpoint, TwoSavesIntoOneDirectoryAtATimeAreRefused) {
  const DirectoryLock other(directory_);
  EXPECT_EQ(error_of([&] { save_step(1); }).code, Code::busy);
  EXPECT_EQ(entries(), 0u);
}

TEST_F(SavedCheckpoint, TheDirectoryIsMadeButNoneAboveIt) {
  EXPECT_EQ(save(directory_ + "/new//", small(1), reader(1)), directory_ + "/new/step-0000000001");
  EXPECT_EQ(error_of([&] { save(directory_ + "/no/such", small(1), reader(1)); }).code, Code::io);
  put(directory_ + "/file", "");
  EXPECT_EQ(error_of([&] { save(directory_ + "/file", small(1), reader(1)); }).code, Code::path);
  put(directory_ + "/step-0000000008", "");
  EXPECT_EQ(error_of([&] { save_step(8); }).code, Code::path);
}

TEST_F(SavedCheckpoint, ANameThatTheFormatKeepsForItselfIsRefused) {
  Description description = small(1);
  description.parameters[0].name = "__metadata__";
  EXPECT_EQ(error_of([&] { save(directory_, description, reader(1)); }).code, Code::unsupported);
}

}  // namespace
}  // namespace protrain::state::save_test
