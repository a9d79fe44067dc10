// Resuming a saved session: with which options it works, and with which it is refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "errors.h"
#include "fixtures.h"
#include "sealed.h"
#include "session/session.h"

namespace protrain::session::save_test {
namespace {

using test::error_of;
using test::kBatch;
using test::kSequence;
using Pairs = std::vector<std::pair<std::string, std::string>>;

std::unique_ptr<Session> session_of(Pairs more = {}, const std::string &model = "gpt2-dynamic-opset18") {
  draft::Options options;
  more.insert(more.begin(), {{"dim", "sequence=32"}, {"threads", "2"}, {"learning_rate", "1e-2"}});
  if (std::ranges::none_of(more, [](const auto &pair) { return pair.second.starts_with("batch="); }))
    more.emplace_back("dim", "batch=2");
  for (const auto &[key, value] : more) options.set(key, value);
  return Session::create(options, test::fixture(model + ".onnx"), nullptr);
}

void feed(Session &session, int batch, int rows = kBatch) {
  static const std::vector<std::int64_t> ids = test::load_tokens("input_ids.npy");
  static const std::vector<std::int64_t> labels = test::load_tokens("labels.npy");
  session.set_input("input_ids", DType::i64, {rows, kSequence}, test::batch(ids, batch));
  session.set_input("labels", DType::i64, {rows, kSequence}, test::batch(labels, batch));
}

// Trains `steps` steps, beginning with batch `first`. Returns their losses, followed by all parameters.
std::vector<float> train(Session &session, int first, int steps) {
  std::vector<float> bits;
  for (int i = first; i < first + steps; ++i) {
    feed(session, i);
    bits.push_back(session.step().loss);
  }
  for (std::size_t p = 0; p < session.parameter_count(); ++p) {
    std::vector<float> values(static_cast<std::size_t>(element_count(session.parameter_shape(p))));
    session.read_parameter(session.parameter_name(p), values.data(), values.size());
    bits.insert(bits.end(), values.begin(), values.end());
  }
  return bits;
}

bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class Save : public testing::Test {
 protected:
  Save() {
    std::string pattern = testing::TempDir() + "/save-XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~Save() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Session> resumed(Pairs more = {}, const std::string &model = "gpt2-dynamic-opset18") const {
    more.emplace_back("resume", directory_);
    return session_of(more, model);
  }

  // Compares a run of five steps with a run of three steps that is saved and resumed for two more.
  void expect_to_go_on(const Pairs &options, const std::string &model = "gpt2-dynamic-opset18") const {
    const auto whole = session_of(options, model), first = session_of(options, model);
    train(*whole, 0, 3);
    train(*first, 0, 3);
    EXPECT_EQ(first->save(directory_), directory_ + "/step-0000000003");
    const auto second = resumed(options, model);
    EXPECT_EQ(second->step_count(), 3u);
    EXPECT_TRUE(same_bits(train(*second, 3, 2), train(*whole, 3, 2)));
    EXPECT_EQ(second->step_count(), 5u);
  }

  std::string directory_;
};

TEST_F(Save, GoesOnWithAdamw) { expect_to_go_on({}); }
TEST_F(Save, GoesOnWithSgdAndMomentum) { expect_to_go_on({{"optimizer", "sgd"}, {"momentum", "0.9"}}); }
TEST_F(Save, GoesOnWithPlainSgd) { expect_to_go_on({{"optimizer", "sgd"}}); }
TEST_F(Save, GoesOnWithLion) { expect_to_go_on({{"optimizer", "lion"}, {"precision", "bf16"}}); }
TEST_F(Save, GoesOnWithMomentsInEightBits) { expect_to_go_on({{"optimizer", "adamw8bit"}, {"precision", "bf16"}}); }
TEST_F(Save, GoesOnWithFrozenParameters) { expect_to_go_on({{"frozen", "*.bias"}}); }
TEST_F(Save, GoesOnWithAScheduleAndGroups) {
  expect_to_go_on({{"schedule", "cosine"},
                   {"total_steps", "5"},
                   {"warmup_steps", "2"},
                   {"no_decay", "norms"},
                   {"layer_decay", "0.5"},
                   {"group", "*ln_1.bias,learning_rate_scale=2"}});
}
TEST_F(Save, GoesOnWithDropout) { expect_to_go_on({{"seed", "5"}}, "dropout-gpt"); }

// A manifest may have wrong contents and a right checksum, so every counter must be checked.
TEST_F(Save, ACounterThatNoRunCouldHaveIsRefused) {
  const auto session = session_of({{"precision", "fp16"}});
  train(*session, 0, 2);
  const std::string path = session->save(directory_) + "/manifest.json";
  std::ostringstream whole;
  whole << std::ifstream(path).rdbuf();
  const auto refusal = [&](const std::string &from, const std::string &to) {
    std::string text = whole.str();
    EXPECT_NE(text.find(from), std::string::npos) << from;
    std::ofstream(path) << test::sealed(text.replace(text.find(from), from.size(), to));
    return error_of([&] { resumed({{"precision", "fp16"}}); });
  };
  EXPECT_EQ(refusal("\"seed\": 0", "\"seed\": 0").code, Code::ok);
  EXPECT_EQ(refusal("\"seed\": 0", "\"seed\": 9223372036854775808").code, Code::format);
  EXPECT_EQ(refusal("\"seed\": 0", "\"seeds\": 0").code, Code::format);
  EXPECT_EQ(refusal("\"seed\": 0", "\"seed\": 0, \"micro_patch\": 2").text,
            "its manifest has a counter 'micro_patch', which no session has");
  EXPECT_EQ(refusal("\"skipped\": 0", "\"skipped\": 3").code, Code::format);
  EXPECT_EQ(refusal("\"skipped\": 0", "\"skipped\": 1").code, Code::format) << "two steps went by at one scale";
  EXPECT_EQ(refusal("\"steps_at_loss_scale\": 2", "\"steps_at_loss_scale\": 3").code, Code::format);
  EXPECT_EQ(refusal("\"loss_scale\": 65536", "\"lost_scale\": 65536").code, Code::format);
  EXPECT_EQ(refusal("\"loss_scale\": 65536,", "").text,
            "its manifest has one of the counters loss_scale and steps_at_loss_scale without the other");
  EXPECT_EQ(refusal("\"loss_scale\": 65536", "\"loss_scale\": 3").code, Code::format);
}

TEST_F(Save, TheSeedIsTheCheckpointsAndNoOtherIsTaken) {
  const auto first = session_of({{"seed", "5"}}, "dropout-gpt");
  train(*first, 0, 1);
  first->save(directory_);
  EXPECT_TRUE(same_bits(train(*resumed({}, "dropout-gpt"), 1, 1), train(*first, 1, 1)));
  const Error error = error_of([&] { resumed({{"seed", "6"}}, "dropout-gpt"); });
  EXPECT_EQ(error.code, Code::mismatch);
  EXPECT_NE(error.text.find("the seed is 6 and that of"), std::string::npos) << error.text;
}

// The optimizer does not count skipped steps, so its count is lower than the session's. A resumed run must have both
// counts.
TEST_F(Save, RemembersTheStepsThatWereSkipped) {
  const Pairs options = {{"on_nonfinite", "skip"}};
  const auto first = session_of(options);
  train(*first, 0, 2);
  const std::string name = first->parameter_name(0);
  std::vector<float> values(static_cast<std::size_t>(element_count(first->parameter_shape(0))));
  first->read_parameter(name, values.data(), values.size());
  const std::vector<float> broken(values.size(), std::numeric_limits<float>::quiet_NaN());
  first->write_parameter(name, broken.data(), broken.size());
  feed(*first, 2);
  first->step();
  first->write_parameter(name, values.data(), values.size());
  first->save(directory_);
  EXPECT_TRUE(same_bits(train(*resumed(options), 3, 2), train(*first, 3, 2)));
}

TEST_F(Save, ANewStepSizeIsTheOptions) {
  const auto first = session_of();
  train(*first, 0, 1);
  first->save(directory_);
  const auto second = resumed({{"learning_rate", "0"}});
  const auto before = train(*second, 0, 0), after = train(*second, 1, 1);
  EXPECT_TRUE(same_bits(before, {after.begin() + 1, after.end()}));
}

TEST_F(Save, AnotherBatchSizeGoesOn) {
  const auto first = session_of();
  train(*first, 0, 1);
  first->save(directory_);
  const auto second = resumed({{"dim", "batch=1"}});
  feed(*second, 1, 1);
  second->step();
  EXPECT_EQ(second->step_count(), 2u);
}

TEST_F(Save, WithinAStepIsRefused) {
  const auto session = session_of({{"accumulation", "3"}});
  feed(*session, 0);
  session->step();
  const Error error = error_of([&] { session->save(directory_); });
  EXPECT_EQ(error.code, Code::state);
  EXPECT_NE(error.text.find("1 of 3 batches"), std::string::npos) << error.text;
  session->step();
  session->step();
  EXPECT_EQ(session->save(directory_), directory_ + "/step-0000000001");
}

TEST_F(Save, WithAccumulationGoesOn) {
  const Pairs options = {{"accumulation", "2"}, {"clip_norm", "0.5"}};
  const auto first = session_of(options);
  train(*first, 0, 4);
  first->save(directory_);
  EXPECT_TRUE(same_bits(train(*resumed(options), 4, 4), train(*first, 4, 4)));
}

TEST_F(Save, GradientsOfAStepBeforeTheCheckpointAreNotThere) {
  const Pairs options = {{"keep_gradients", "*ln_f.bias"}};
  const auto first = session_of(options);
  train(*first, 0, 1);
  first->save(directory_);
  std::vector<float> gradient(64);
  const auto read = [&] { resumed(options)->read_grad("m.transformer.ln_f.bias", gradient.data(), 64); };
  EXPECT_EQ(error_of(read).code, Code::state);
}

TEST_F(Save, WhatIsTrainedOtherwiseIsRefused) {
  const auto first = session_of();
  train(*first, 0, 1);
  first->save(directory_);
  EXPECT_EQ(error_of([&] { resumed({{"optimizer", "sgd"}}); }).code, Code::mismatch);
  const Error frozen = error_of([&] { resumed({{"frozen", "*.wpe.*"}}); });
  EXPECT_EQ(frozen.code, Code::mismatch);
  EXPECT_NE(frozen.text.find("the optimizer keeps [moment1, moment2] of m.transformer.wpe.weight there and [] here"),
            std::string::npos)
      << frozen.text;
  EXPECT_EQ(error_of([&] { resumed({}, "llama-dynamic-opset18"); }).code, Code::mismatch);
  EXPECT_EQ(error_of([&] { resumed({{"optimizer", "adamw8bit"}}); }).code, Code::mismatch);
  const Error average = error_of([&] { resumed({{"ema", "0.9"}}); });
  EXPECT_EQ(average.code, Code::mismatch);
  EXPECT_NE(average.text.find("there and [ema, moment1, moment2] here"), std::string::npos) << average.text;
}

// Other programs read these files, so the names, types and shapes of the tensors must stay as they are.
TEST_F(Save, HoldsEveryArrayOfTheOptimizer) {
  const Pairs options = {{"optimizer", "adamw8bit"}, {"ema", "0.9"}};
  const auto session = session_of(options);
  train(*session, 0, 2);
  std::ostringstream file;
  file << std::ifstream(session->save(directory_) + "/optimizer.safetensors").rdbuf();
  const std::string bytes = file.str();
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const auto header = nlohmann::json::parse(bytes.substr(sizeof length, length));
  const std::string name = "m.transformer.ln_f.bias";  // 64 elements, one block
  EXPECT_EQ(header[name + "/ema"]["dtype"], "F32");
  EXPECT_EQ(header[name + "/ema"]["shape"], nlohmann::json::array({64}));
  EXPECT_EQ(header[name + "/scale1"]["dtype"], "F32");
  EXPECT_EQ(header[name + "/scale2"]["shape"], nlohmann::json::array({1}));
  EXPECT_EQ(header[name + "/moment1"]["dtype"], "U8");
  EXPECT_EQ(header[name + "/moment2"]["shape"], nlohmann::json::array({64}));
  EXPECT_EQ(header.size(), 5 * session->parameter_count());
  for (const auto &[tensor, about] : header.items()) {
    const std::uint64_t unit = about["dtype"] == "F32" ? 4 : 1;
    EXPECT_EQ(about["data_offsets"][0].get<std::uint64_t>() % unit, 0U) << tensor;
  }
}

TEST_F(Save, AFailedSaveLeavesTheSessionAsItWas) {
  const auto whole = session_of(), session = session_of();
  train(*whole, 0, 1);
  train(*session, 0, 1);
  EXPECT_EQ(error_of([&] { session->save(directory_ + "/no/such"); }).code, Code::io);
  EXPECT_TRUE(same_bits(train(*session, 1, 1), train(*whole, 1, 1)));
}

}  // namespace
}  // namespace protrain::session::save_test
