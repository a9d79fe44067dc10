// If one rank fails, all ranks get an error and none waits for ever. A failure before a call begins changes nothing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files.h"
#include "comm/agree.h"
#include "draft/ranked_machine.h"
#include "ranked_training.h"
#include "state/checkpoint.h"
#include "state/folders.h"

namespace protrain::test::ranked_failure_test {
namespace {

constexpr int kRanks = 3, kOdd = 1;  // kOdd: the rank that fails, or does something else
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

// run() calls work(session, rank) for each rank on a thread of its own. `work` passes the call that may fail to
// note(rank, call), which makes the call and keeps its outcome. After all threads have ended, run() passes each rank's
// outcome to check().
class RankedFailure : public testing::Test {
 protected:
  void run(const std::function<void(session::Session &, int)> &work,
           std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    const auto errors = ThreadGroup(kRanks, timeout).run([&](std::shared_ptr<comm::Channel> channel) {
      const auto session = session_of(options, kModel, channel);
      channels[static_cast<std::size_t>(channel->rank())] = channel.get();
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

  Pairs options = base_options(kModel);
  std::vector<comm::Channel *> channels = std::vector<comm::Channel *>(kRanks);  // by rank; valid while its work runs
  std::function<void(int rank, const Outcome &outcome)> check = [](int, const Outcome &) {};

 private:
  std::vector<Outcome> outcomes_ = std::vector<Outcome>(kRanks);
};

TEST_F(RankedFailure, OfARankThatCannotBeginAStepLosesNothing) {
  check = [](int rank, const Outcome &outcome) {
    EXPECT_EQ(outcome.code, rank == kOdd ? Code::state : Code::peer) << outcome.text;
    EXPECT_NE(outcome.text.find("was never set"), std::string::npos) << outcome.text;
    EXPECT_TRUE(rank == kOdd || outcome.subject == "rank 1") << outcome.subject;
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
    session.read_flat_parameters(values.data(), values.size());  // a cancel stops only steps and evaluations
    note(rank, [&] { step(session, rank); });
    EXPECT_EQ(session.step_count(), 0u);
    step(session, rank);
    EXPECT_EQ(session.step_count(), 1u);
  });
}

// Rank 1 is cancelled, and has another learning rate than the others. A cancelled step does nothing, so no rank may
// complain that the rates differ.
TEST_F(RankedFailure, ACancelOnOneRankCancelsAStepThatDiffersToo) {
  check = [](int, const Outcome &outcome) { EXPECT_EQ(outcome.code, Code::cancelled) << outcome.text; };
  run([&](session::Session &session, int rank) {
    if (rank == kOdd) session.cancel();
    session.set_learning_rate(rank == kOdd ? 0.5 : 0.25);
    note(rank, [&] { step(session, rank); });
    session.set_learning_rate(0.25);
    step(session, rank);
    EXPECT_EQ(session.step_count(), 1u);
  });
}

// A rank checks the values of its inputs before the step begins. If it found the wrong value inside the step, the other
// ranks would already wait for its messages.
TEST_F(RankedFailure, OfAnInputBeyondTheVocabularyLosesNothing) {
  check = [](int rank, const Outcome &outcome) {
    EXPECT_EQ(outcome.code, rank == kOdd ? Code::arg : Code::peer) << outcome.text;
    EXPECT_NE(outcome.text.find("label 1048576 of row 61, which is outside 0..511"), std::string::npos) << outcome.text;
    EXPECT_EQ(outcome.text.find("instruction"), std::string::npos) << outcome.text;
  };
  std::vector<Trace> traces(kRanks);
  const Group group{.ranks = kRanks, .steps = 2};
  run([&](session::Session &session, int rank) {
    const auto set_last = [&](const std::string &input, std::int64_t value) {
      std::vector<std::int64_t> values(std::size_t{kBatch} * kSequence, 1);
      values.back() = value;
      feed(session, rank);
      if (rank == kOdd) session.set_input(input, DType::i64, {kBatch, kSequence}, values.data());
    };
    const Code refusal = rank == kOdd ? Code::arg : Code::peer;
    set_last("input_ids", -513);
    EXPECT_EQ(outcome_of([&] { session.evaluate(); }).code, refusal);
    EXPECT_EQ(outcome_of([&] { session.step(); }).code, refusal);
    set_last("labels", 1 << 20);
    note(rank, [&] { session.step(); });
    traces[static_cast<std::size_t>(rank)] = train_share(session, *channels[static_cast<std::size_t>(rank)], group);
  });
  EXPECT_EQ(traces, train_ranks(group, base_options(kModel), kModel));
}

// Neither of two odd values is an error. No node reads the first label of a sequence, because labels are shifted by
// one. A negative token index counts from the end.
TEST_F(RankedFailure, IsNotDueToAValueThatNobodyReads) {
  run([&](session::Session &session, int rank) {
    std::vector<std::int64_t> labels(std::size_t{kBatch} * kSequence, 1), tokens = labels;
    labels[0] = 1 << 20;
    tokens[5] = -512;
    session.set_input("labels", DType::i64, {kBatch, kSequence}, labels.data());
    session.set_input("input_ids", DType::i64, {kBatch, kSequence}, tokens.data());
    note(rank, [&] { session.step(); });
    EXPECT_EQ(session.step_count(), 1u);
  });
}

// A channel that calls a function of the test before one exchange. fail_after() sets the exchange and the function.
class FailingChannel final : public comm::Channel {
 public:
  explicit FailingChannel(std::shared_ptr<comm::Channel> channel) : channel_(std::move(channel)) {}
  int rank() const override { return channel_->rank(); }
  int ranks() const override { return channel_->ranks(); }
  void exchange(std::span<const comm::Send> sends, std::span<const comm::Receive> receives) override {
    if (left_ >= 0 && left_-- == 0) fail_();
    channel_->exchange(sends, receives);
  }
  // Waits after the abort, so that threads that wait in an exchange notice the abort before the caller of this function
  // goes on.
  void abort(const std::string &reason) noexcept override {
    channel_->abort(reason);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  void throw_if_failed() override { channel_->throw_if_failed(); }
  void fail_after(int exchanges, std::function<void()> fail) {
    left_ = exchanges;
    fail_ = std::move(fail);
  }

 private:
  const std::shared_ptr<comm::Channel> channel_;
  int left_ = -1;
  std::function<void()> fail_;
};

// A rank may run out of memory in any call. The other ranks must learn of it at once.
TEST_F(RankedFailure, OfARankWithoutMemoryReachesTheOthers) {
  const Scratch scratch;
  struct Act {
    std::vector<int> exchanges;  // the numbers of the exchanges in which memory runs out
    std::function<void(session::Session &, int)> call;
  };
  const Act acts[] = {
      {{0, 1, 3}, step},
      {{0}, [](session::Session &session, int) { session.evaluate(); }},
      {{0, 1, 2}, [&](session::Session &session, int) { session.save(scratch.path() + "/checkpoints"); }},
      {{0, 1, 2}, [&](session::Session &session, int) { session.export_model(scratch.path() + "/out.onnx"); }},
  };
  for (const Act &act : acts)
    for (const int exchanges : act.exchanges) {
      const auto errors = ThreadGroup(kRanks).run([&](const std::shared_ptr<comm::Channel> &channel) {
        const auto failing = std::make_shared<FailingChannel>(channel);
        const auto session = session_of(base_options(kModel), kModel, failing);
        const int rank = channel->rank();
        step(*session, rank);
        if (rank == kOdd) failing->fail_after(exchanges, [] { throw std::bad_alloc(); });
        const Outcome outcome = outcome_of([&] {
          try {
            act.call(*session, rank);
          } catch (...) {
            session->judge_exception();  // as every call of the library does
            throw;
          }
        });
        EXPECT_EQ(outcome.code, rank == kOdd ? Code::nomem : Code::peer) << outcome.text;
        EXPECT_NE(outcome.text.find("out of memory"), std::string::npos) << outcome.text;
        EXPECT_EQ(outcome_of([&] { step(*session, rank); }).code, Code::state);
      });
      for (const std::exception_ptr &error : errors)
        if (error) std::rethrow_exception(error);
    }
}

// Makes reads of the offload file in `directory` fail. The file has no name there, so the function looks for it among
// the process's open files.
void break_file_in(const std::string &directory) {
  for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (std::filesystem::read_symlink(entry.path(), error).string().starts_with(directory + "/")) {
      const int writable = open("/dev/null", O_WRONLY | O_CLOEXEC);
      dup2(writable, std::stoi(entry.path().filename()));
      close(writable);
      return;
    }
  }
  FAIL() << "no file is open in " << directory;
}

// Each rank keeps a part of its state on a disk of its own. Makes the disk of rank 1 fail after `exchanges` exchanges
// of the call, or before the call if `exchanges` is negative. Rank 1 must return the error of its disk, and the others
// must say that rank 1 has failed and why.
void fail_with_a_disk(const std::function<void(session::Session &, const std::string &scratch)> &call,
                      int exchanges = -1) {
  const Scratch scratch;
  const std::string plan = scratch.file(
      "plan.json", R"({"n_persist": 1, "n_host": 1, "n_swap": 0, "n_checkpoint": 1, "chunk_bytes": 65536})");
  const auto errors = ThreadGroup(kRanks).run([&](const std::shared_ptr<comm::Channel> &channel) {
    const int rank = channel->rank();
    const std::string directory = fmt::format("{}/{}", scratch.path(), rank);
    std::filesystem::create_directory(directory);
    Pairs pairs = base_options(kModel);
    pairs.insert(pairs.end(), {{"plan", plan}, {"offload_dir", directory}});
    const auto failing = std::make_shared<FailingChannel>(channel);
    const auto session = session_of(pairs, kModel, failing);
    feed(*session, rank);
    session->step();
    if (rank == kOdd && exchanges < 0) break_file_in(directory);
    if (rank == kOdd && exchanges >= 0) failing->fail_after(exchanges, [directory] { break_file_in(directory); });
    const Outcome outcome = outcome_of([&] { call(*session, scratch.path()); });
    EXPECT_EQ(outcome.code, rank == kOdd ? Code::io : Code::peer) << outcome.text;
    EXPECT_NE(outcome.text.find("there: "), std::string::npos) << outcome.text;
  });
  for (const std::exception_ptr &error : errors)
    if (error) std::rethrow_exception(error);
}

// In a save, each rank reads the part of the state that it has on disk. Here rank 1 cannot read its part.
TEST_F(RankedFailure, OfARankThatCannotReadItsPartReachesTheOthers) {
  fail_with_a_disk(
      [](session::Session &session, const std::string &scratch) { session.save(scratch + "/checkpoints"); });
}

// In rank 1, the thread of the disk fails while another thread waits in an exchange. The failure must end this wait,
// and rank 1 must report the disk's error.
TEST_F(RankedFailure, OfADiskInsideAStepIsReportedAsSuch) {
  fail_with_a_disk([](session::Session &session, const std::string &) { session.step(); }, 1);
}

// Rank 1 fails at the third exchange of a step. The first exchange serves only to agree that the step begins, and the
// third one lies inside the step.
TEST_F(RankedFailure, InsideAStepLosesTheSessionOnEveryRank) {
  const auto errors = ThreadGroup(kRanks).run([&](const std::shared_ptr<comm::Channel> &channel) {
    const auto failing = std::make_shared<FailingChannel>(channel);
    const auto session = session_of(base_options(kModel), kModel, failing);
    const int rank = channel->rank();
    step(*session, rank);
    if (rank == kOdd) failing->fail_after(2, [] { throw Error(Code::nospc, "offload.bin", "the disk is full"); });
    const Outcome outcome = outcome_of([&] { step(*session, rank); });
    EXPECT_EQ(outcome.code, rank == kOdd ? Code::nospc : Code::peer) << outcome.text;
    EXPECT_NE(outcome.text.find("the disk is full"), std::string::npos) << outcome.text;
    EXPECT_EQ(outcome_of([&] { session->step(); }).code, Code::state);
  });
  for (const std::exception_ptr &error : errors)
    if (error) std::rethrow_exception(error);
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

TEST_F(RankedFailure, OfARankThatLeavesLosesTheSessionsThatReadAGradient) {
  check = [](int rank, const Outcome &outcome) {
    EXPECT_EQ(outcome.code, rank == kOdd ? Code::ok : Code::peer) << outcome.text;
    EXPECT_EQ(outcome.text.find("the session is lost") == std::string::npos, rank == kOdd) << outcome.text;
  };
  options.emplace_back("keep_gradients", "*");
  run([&](session::Session &session, int rank) {
    step(session, rank);
    const std::string &name = session.parameter_name(0);
    std::vector<float> values(static_cast<std::size_t>(element_count(session.parameter_shape(0))));
    if (rank != kOdd) note(rank, [&] { session.read_grad(name, values.data(), values.size()); });
  });
}

TEST_F(RankedFailure, OfARankThatIsSilentEndsAtTheDeadline) {
  check = [](int rank, const Outcome &outcome) {
    if (rank != kOdd) {
      EXPECT_EQ(outcome.code, Code::timeout) << outcome.text;
    }
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

// Makes a folder in `directory` with the temporary name that a save of step 1 uses.
std::string make_stale_folder(const std::string &directory) {
  const std::string folder = directory + "/" + state::temporary_name(1, 0);
  std::filesystem::create_directories(folder);
  return folder;
}

// Rank 1 cannot write its part, because its folder already has a directory with the name of that part's file.
TEST_F(RankedFailure, OfAPartOfASaveLosesNothingAndLeavesNothing) {
  check = [](int rank, const Outcome &outcome) {
    EXPECT_EQ(outcome.code, rank == kOdd ? Code::path : Code::peer) << outcome.text;
    EXPECT_TRUE(rank == kOdd || outcome.subject == "rank 1") << outcome.subject;
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

// Rank 1 saves to another directory than the other ranks, as if that directory were on another machine. A folder with
// the save's temporary name is already there, so rank 1 can write its part into it. Rank 0 does not find the part in
// its own directory.
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

// Rank 1 has another model, plan or checkpoint than the others, so together the ranks would train a mixture. Each rank
// must refuse to create its session, and name what differs.
TEST_F(RankedFailure, OfRanksThatReadOtherFilesIsAMismatchThatNamesThem) {
  const Scratch scratch;
  const std::string own = fixture(kModel + ".onnx"), other = scratch.path() + "/other.onnx",
                    first = scratch.path() + "/first", second = scratch.path() + "/second";
  const auto alone = session_of(base_options(kModel), kModel, std::shared_ptr(comm::open({})));
  alone->save(first);
  step(*alone, 0);
  alone->save(second);
  alone->export_model(other);
  const std::string cut = scratch.file("cut.json", R"({"n_persist": 1, "n_host": 1, "chunk_bytes": 65536})"),
                    whole = scratch.file("whole.json", R"({"n_persist": 2, "n_host": 0, "chunk_bytes": 65536})");
  struct Case {
    std::string named, odd_model, option, value, odd_value;
  };
  for (const Case &one : {Case{"model", other, "seed", "1", "1"},
                          {"model", fixture("gpt2-dynamic-opset23.onnx"), "seed", "1", "1"},
                          {"model", fixture("llama-dynamic-opset18.onnx"), "seed", "1", "1"},
                          {"plan", own, "plan", cut, whole},
                          {"resume", own, "resume", first, second}}) {
    const auto errors = ThreadGroup(kRanks).run([&](const std::shared_ptr<comm::Channel> &channel) {
      const bool odd = channel->rank() == kOdd;
      Pairs pairs = base_options(kModel);
      pairs.insert(pairs.end(), {{"offload_dir", scratch.path()}, {one.option, odd ? one.odd_value : one.value}});
      const Outcome outcome = outcome_of([&] { session_at(pairs, odd ? one.odd_model : own, channel); });
      EXPECT_EQ(outcome.code, Code::mismatch) << outcome.text;
      EXPECT_EQ(outcome.subject, one.named) << outcome.text;
      EXPECT_NE(outcome.text.find("on rank 1 and"), std::string::npos) << outcome.text;
    });
    for (const std::exception_ptr &error : errors)
      if (error) std::rethrow_exception(error);
  }
}

// A rank of another release may exchange other things. Here rank 1 sends a text where the others expect a list.
TEST_F(RankedFailure, OfARankOfAnotherReleaseIsSaid) {
  for (const char *sent : {"a name", "5"})
    ThreadGroup(kRanks).run([&](const std::shared_ptr<comm::Channel> &channel) {
      if (channel->rank() == kOdd) {
        comm::gather_texts(*channel, sent);
        return;
      }
      const Outcome outcome = outcome_of([&] { draft::require_same(*channel, {{"release", "1"}}); });
      EXPECT_EQ(outcome.code, Code::version) << outcome.text;
      EXPECT_EQ(outcome.subject, "rank 1");
      EXPECT_NE(outcome.text.find("the same release"), std::string::npos) << outcome.text;
    });
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
