// The size of a micro-batch, which a session chooses if tokens_per_step is given and the batch size is not.
#include <gtest/gtest.h>

#include "errors.h"
#include "fixtures.h"
#include "scratch.h"
#include "session/session.h"

namespace protrain::session::micro_batch_test {
namespace {

using test::code_of;
using test::error_of;
using test::fixture;

constexpr std::int64_t kSequence = 16, kSamples = 32;

using Pairs = std::vector<std::pair<std::string, std::string>>;

std::unique_ptr<Session> gpt2(const Pairs &more) {
  draft::Options options;
  options.set("dim", "sequence=16");
  options.set("tokens_per_step", "512");
  for (const auto &[key, value] : more) {
    if (key == "tokens_per_step") options.clear(key);
    options.set(key, value);
  }
  return Session::create(options, fixture("gpt2-dynamic-opset18.onnx"), nullptr);
}

std::int64_t batch_of(Session &session) { return session.input_shape(0)[0]; }

void take_step(Session &session) {
  const std::int64_t batch = batch_of(session);
  for (std::int64_t sample = 0; sample < kSamples; sample += batch) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < batch * kSequence; ++i) ids.push_back((sample * kSequence + i) * 7 % 97);
    for (std::size_t i = 0; i < session.input_count(); ++i)
      session.set_input(session.input_name(i), DType::i64, {batch, kSequence}, ids.data());
    session.step();
  }
}

TEST(MicroBatch, IsTheWholeStepWhereEverythingFits) { EXPECT_EQ(batch_of(*gpt2({})), kSamples); }

TEST(MicroBatch, DividesTheStepAndShrinksWithTheBudget) {
  std::int64_t last = kSamples + 1;
  for (const char *memory : {"20MiB", "8MiB", "6MiB", "5MiB"}) {
    const std::int64_t batch = batch_of(*gpt2({{"memory", memory}}));
    EXPECT_EQ(kSamples % batch, 0);
    EXPECT_LE(batch, last) << memory;
    last = batch;
  }
  EXPECT_LT(last, kSamples);
}

TEST(MicroBatch, IsNotSettledWhereTheBatchIsBound) {
  EXPECT_EQ(batch_of(*gpt2({{"dim", "batch=4"}, {"memory", "20MiB"}})), 4);
}

TEST(MicroBatch, OfACheckpointIsKeptByWhoeverResumes) {
  const test::Scratch scratch;
  const auto small = gpt2({{"memory", "8MiB"}});
  const std::int64_t batch = batch_of(*small);
  ASSERT_LT(batch, kSamples);
  take_step(*small);
  small->save(scratch.path());
  const auto resumed = gpt2({{"memory", "64MiB"}, {"resume", scratch.path()}});
  EXPECT_EQ(batch_of(*resumed), batch);
  take_step(*small);
  take_step(*resumed);
  EXPECT_EQ(small->grad_norm(), resumed->grad_norm());
  const auto other = [&] { gpt2({{"resume", scratch.path()}, {"tokens_per_step", "528"}}); };
  EXPECT_EQ(code_of(other), Code::mismatch);
  EXPECT_EQ(error_of(other).subject, "tokens_per_step");
}

TEST(MicroBatch, NeedsStepsOfWholeSamples) {
  EXPECT_EQ(code_of([] { gpt2({{"tokens_per_step", "100"}}); }), Code::arg);
}

TEST(MicroBatch, IsNotLeftOpenBesideAPlanFile) {
  EXPECT_EQ(code_of([] { gpt2({{"plan", "plan.json"}}); }), Code::arg);
}

}  // namespace
}  // namespace protrain::session::micro_batch_test
