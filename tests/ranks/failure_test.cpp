// A failure of one rank is an error on all, and none waits for ever. What fails before a call begins changes nothing.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "ranked_training.h"
#include "state/checkpoint.h"
#include "state/folders.h"

namespace protrain::test::ranked_failure_test {
namespace {

constexpr int kRanks = 3, kOdd = 1;  // kOdd: the rank that does something else
const std::string kModel = "gpt2-dynamic-opset18";

struct Outcome {
  Code code = Code::ok;
  std::string subject, text;
};

Outcome outcome_of(const std::function<void()> &call) {
  try {
    call();
  } catch (const Error &error) {
    return {error.code, error.subject, error.text};
  }
  return {};
}

// Ranks that run `work`, each with a session. work(session, rank) is to note what it saw.
class RankedFailure : public testing::Test {
 protected:
  void run(const std::function<void(session::Session &, int)> &work,
           std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    const auto errors = ThreadGroup(kRanks, timeout).run([&](std::shared_ptr<comm::Channel> channel) {
      const auto session = session_of(base_options(kModel), kModel, channel);
      work(*session, channel->rank());
    });
    for (const std::exception_ptr &error : errors)
      if (error) std::rethrow_exception(error);
    for (int rank = 0; rank < kRanks; ++rank) {
      SCOPED_TRACE(rank);
      check(rank, outcomes_[static_cast<std::size_t>(rank)]);
    }
  }

  void note(int rank, const std::function<void()> &call) {
    outcomes_[static_cast<std::size_t>(rank)] = outcome_of(call);
  }

  static void step(session::Session &session, int rank) {
    feed(session, rank);
    session.step();
  }

  std::function<void(int rank, const Outcome &outcome)> check = [](int, const Outcome &) {};

 private:
  std::vector<Outcome> outcomes_ = std::vector<Outcome>(kRanks);
};

TEST_F(RankedFailure, OfARankThatCannotBeginAStepLosesNothing) {
  check = [](int rank, const Outcome &outcome) {
    EXPECT_EQ(outcome.code, rank == kOdd ? Code::state : Code::peer) << outcome.text;
    EXPECT_NE(outcome.text.find("was never set"), std::string::npos) << outcome.text;
    if (rank != kOdd) EXPECT_EQ(outcome.subject, "rank 1");
  };
  run([&](session::Session &session, int rank) {
    if (rank != kOdd) feed(session, rank);
    note(rank, [&] { session.step(); });
    step(session, rank);
    EXPECT_EQ(session.step_count(), 1u);
  });
}

TEST_F(RankedFailure, OfARankThatCannotBeginToReadOrWriteLosesNothing) {
  check = [](int rank, const Outcome &outcome) {
    EXPECT_EQ(outcome.code, rank == kOdd ? Code::shape : Code::peer) << outcome.text;
  };
  run([&](session::Session &session, int rank) {
    std::vector<float> values(session.flat_parameters_elements());
    const std::size_t count = values.size() - (rank == kOdd ? 1 : 0);
    for (int i = 0; i < 2; ++i)
      note(rank, [&] {
        i == 0 ? session.read_flat_parameters(values.data(), count)
               : session.write_flat_parameters(values.data(), count);
      });
    step(session, rank);
  });
}

TEST_F(RankedFailure, OfDifferentCallsIsAnErrorThatNamesThemAndLosesNothing) {
  check = [](int, const Outcome &outcome) {
    EXPECT_EQ(outcome.code, Code::state);
    EXPECT_NE(outcome.text.find("rank 1 calls evaluate while rank 0 calls step"), std::string::npos) << outcome.text;
  };
  run([&](session::Session &session, int rank) {
    feed(session, rank);
    note(rank, [&] { rank == kOdd ? static_cast<void>(session.evaluate()) : static_cast<void>(session.step()); });
    step(session, rank);
  });
}

TEST_F(RankedFailure, OfDifferentLearningRatesIsAMismatch) {
  check = [](int, const Outcome &outcome) { EXPECT_EQ(outcome.code, Code::mismatch) << outcome.text; };
  run([&](session::Session &session, int rank) {
    session.set_learning_rate(rank == kOdd ? 0.5 : 0.25);
    note(rank, [&] { step(session, rank); });
    session.set_learning_rate(0.25);
    step(session, rank);
  });
}

TEST_F(RankedFailure, ACancelOnOneRankCancelsTheStepOnAll) {
  check = [](int, const Outcome &outcome) { EXPECT_EQ(outcome.code, Code::cancelled) << outcome.text; };
  run([&](session::Session &session, int rank) {
    if (rank == kOdd) session.cancel();
    std::vector<float> values(session.flat_parameters_elements());
    session.read_flat_parameters(values.data(), values.size());  // a cancel is for a step or an evaluation
    note(rank, [&] { step(session, rank); });
    EXPECT_EQ(session.step_count(), 0u);
    step(session, rank);
    EXPECT_EQ(session.step_count(), 1u);
  });
}

// A label beyond the vocabulary is found in the middle of a step, when the other ranks wait for gradients.
TEST_F(RankedFailure, InsideAStepLosesTheSessionOnEveryRank) {
  check = [](int rank, const Outcome &outcome) {
    EXPECT_EQ(outcome.code, rank == kOdd ? Code::arg : Code::peer) << outcome.text;
  };
  run([&](session::Session &session, int rank) {
    feed(session, rank);
    const std::vector<std::int64_t> beyond(std::size_t{kBatch} * kSequence, 1 << 20);
    if (rank == kOdd) session.set_input("labels", DType::i64, {kBatch, kSequence}, beyond.data());
    note(rank, [&] { session.step(); });
    EXPECT_EQ(outcome_of([&] { session.step(); }).code, Code::state);
  });
}

TEST_F(RankedFailure, OfARankThatLeavesReachesTheOthers) {
  check = [](int rank, const Outcome &outcome) {
    EXPECT_EQ(outcome.code, rank == kOdd ? Code::ok : Code::peer) << outcome.text;
  };
  run([&](session::Session &session, int rank) {
    step(session, rank);
    if (rank != kOdd) note(rank, [&] { step(session, rank); });
  });
}

TEST_F(RankedFailure, OfARankThatIsSilentEndsAtTheDeadline) {
  check = [](int rank, const Outcome &outcome) {
    if (rank != kOdd) EXPECT_EQ(outcome.code, Code::timeout) << outcome.text;
  };
  const auto timeout = std::chrono::seconds(8);  // enough for a step of ranks on a busy machine
  run(
      [&](session::Session &session, int rank) {
        step(session, rank);
        if (rank == kOdd) std::this_thread::sleep_for(2 * timeout);
        note(rank, [&] { step(session, rank); });
      },
      timeout);
}

TEST_F(RankedFailure, OfASaveLosesNothing) {
  check = [](int rank, const Outcome &outcome) {
    EXPECT_EQ(outcome.code, rank == 0 ? Code::io : Code::peer) << outcome.text;
  };
  const Scratch scratch;
  run([&](session::Session &session, int rank) {
    step(session, rank);
    note(rank, [&] { session.save(scratch.path() + "/missing/deeper"); });
    step(session, rank);
    session.save(scratch.path() + "/checkpoints");
  });
  EXPECT_TRUE(std::filesystem::exists(scratch.path() + "/checkpoints"));
}

// The folder that rank 0 makes for the checkpoint of step 1 when it trains in `directory`, made by hand in another one.
std::string make_stale_folder(const std::string &directory) {
  const std::string folder = directory + "/" + state::temporary_name(1, 0);
  std::filesystem::create_directories(folder);
  return folder;
}

// A rank whose part cannot be written. Its folder has something in the way.
TEST_F(RankedFailure, OfAPartOfASaveLosesNothingAndLeavesNothing) {
  check = [](int rank, const Outcome &outcome) {
    EXPECT_EQ(outcome.code, rank == kOdd ? Code::path : Code::peer) << outcome.text;
    if (rank != kOdd) EXPECT_EQ(outcome.subject, "rank 1");
  };
  const Scratch scratch;
  const std::string saved = scratch.path() + "/saved", other = scratch.path() + "/other";
  std::filesystem::create_directories(make_stale_folder(other) + "/weights-00002-of-00003.safetensors");
  run([&](session::Session &session, int rank) {
    session.save(saved);
    step(session, rank);
    note(rank, [&] { session.save(rank == kOdd ? other : saved); });
    step(session, rank);
  });
  const std::vector<DirectoryEntry> left = list_directory(saved);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].name, "step-0000000000");
  EXPECT_EQ(state::Checkpoint::open(saved).description().counters.at(state::kStep), 0u);
}

// A part that rank 0 does not find, because a folder of the same name was there on another machine.
TEST_F(RankedFailure, OfAPartThatIsElsewhereLosesNothingAndLeavesNothing) {
  check = [](int rank, const Outcome &outcome) {
    EXPECT_EQ(outcome.code, rank == 0 ? Code::io : Code::peer) << outcome.text;
    EXPECT_NE(outcome.text.find("rank 1 has written"), std::string::npos) << outcome.text;
  };
  const Scratch scratch;
  const std::string saved = scratch.path() + "/saved", other = scratch.path() + "/other";
  make_stale_folder(other);
  run([&](session::Session &session, int rank) {
    step(session, rank);
    note(rank, [&] { session.save(rank == kOdd ? other : saved); });
    step(session, rank);
  });
  EXPECT_TRUE(list_directory(saved).empty());
}

TEST_F(RankedFailure, OfARankThatCannotBeMadeReachesTheOthers) {
  const auto errors = ThreadGroup(kRanks).run([&](std::shared_ptr<comm::Channel> channel) {
    const std::string model = channel->rank() == kOdd ? "no-such-model" : kModel;
    session_of(base_options(kModel), model, channel);
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    const Outcome outcome = outcome_of([&] { std::rethrow_exception(errors[static_cast<std::size_t>(rank)]); });
    EXPECT_EQ(outcome.code == Code::peer, rank != kOdd) << outcome.text;
  }
}

}  // namespace
}  // namespace protrain::test::ranked_failure_test
