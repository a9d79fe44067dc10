// Sessions of one process with adapters on the same base: the process holds the base's bytes once, and each session
// trains as if it were alone.
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "base/json.h"
#include "errors.h"
#include "fixtures.h"
#include "scratch.h"
#include "session/session.h"

namespace protrain::session::shared_base_test {
namespace {

using test::error_of;
using Pairs = std::vector<std::pair<std::string, std::string>>;

const std::string kModel = test::fixture("llama-dynamic-opset18.onnx");

// A session, and the bytes of memory that its creation reported.
struct Made {
  std::unique_ptr<Session> session;
  std::uint64_t needed = 0, shared = 0;
};

Made made_without_adapters(const Pairs &more, const onnx_import::ModelSource &model = kModel) {
  draft::Options options;
  for (const auto &[key, value] : more) options.set(key, value);
  for (const auto &[key, value] : Pairs{{"dim", "batch=2"}, {"dim", "sequence=32"}, {"threads", "2"}})
    options.set(key, value);
  Made made;
  made.session = Session::create(options, model, [&](const std::string &line) {
    const Json json = parse_json(line, "log");
    made.needed = *json.find("device_peak_bytes")->whole();
    made.shared = *json.find("shared_bytes")->whole();
  });
  made.session->set_log(nullptr);
  return made;
}

Made made(Pairs more, const onnx_import::ModelSource &model = kModel) {
  more.insert(more.begin(), {"lora", "*.q_proj.weight"});
  return made_without_adapters(more, model);
}

std::vector<float> losses(Session &session) {
  static const std::vector<std::int64_t> ids = test::load_tokens("input_ids.npy"),
                                         labels = test::load_tokens("labels.npy");
  std::vector<float> all;
  for (int step = 0; step < 3; ++step) {
    session.set_input("input_ids", DType::i64, {test::kBatch, test::kSequence}, test::batch(ids, step));
    session.set_input("labels", DType::i64, {test::kBatch, test::kSequence}, test::batch(labels, step));
    all.push_back(session.step().loss);
  }
  return all;
}

// The smallest budget of a session that is alone.
std::uint64_t smallest(Pairs more) {
  more.emplace_back("memory", "1");
  const Error error = error_of([&] { made(more); });
  EXPECT_EQ(error.code, Code::budget);
  const std::string before = "the smallest needs ";
  return std::stoull(error.text.substr(error.text.find(before) + before.size()));
}

class SharedBase : public testing::TestWithParam<std::string> {};

TEST_P(SharedBase, CountsOnceAndChangesNoBits) {
  const Pairs form = {{"base_precision", GetParam()}};
  const std::vector<float> alone = losses(*made(form).session);
  Pairs tight = form;
  tight.emplace_back("memory", std::to_string(smallest(form) - 1));
  EXPECT_EQ(error_of([&] { made(tight); }).code, Code::budget);
  std::vector<Made> sessions;
  sessions.push_back(made(form));
  EXPECT_EQ(sessions[0].shared, 0u);
  for (int i = 1; i < (GetParam() == "nf4" ? 16 : 3); ++i) {
    sessions.push_back(made(tight));
    EXPECT_GT(sessions[i].shared, 0u);
    EXPECT_GT(sessions[i].needed, sessions[i].shared);
  }
  for (const std::size_t i : {0, 2}) EXPECT_EQ(losses(*sessions[i].session), alone);
  sessions.erase(sessions.begin());  // the others go on with the base
  EXPECT_EQ(losses(*made(tight).session), alone);
  sessions.clear();
  EXPECT_EQ(error_of([&] { made(tight); }).code, Code::budget);
}

INSTANTIATE_TEST_SUITE_P(Forms, SharedBase, testing::Values("file", "bf16", "int8", "nf4"));

TEST(SharedBases, BelongToAdaptersOfAnyRankAndPlace) {
  const Made first = made({}), other = made({{"lora", "*.mlp.*.weight,rank=2"}, {"lora_dropout", "0.1"}});
  EXPECT_GT(other.shared, 0u);
}

TEST(SharedBases, AreOfOneFormAndOfOneFilesWeights) {
  const test::Scratch scratch;
  const Made first = made({{"base_precision", "nf4"}});
  EXPECT_EQ(made({}).shared, 0u);
  EXPECT_EQ(made({{"base_precision", "int8"}}).shared, 0u);
  losses(*first.session);
  first.session->export_model(scratch / "merged.onnx");
  EXPECT_EQ(made({{"base_precision", "nf4"}}, scratch / "merged.onnx").shared, 0u);
}

TEST(SharedBases, OfAllFormsAreTried) {
  const Pairs nf4 = {{"base_precision", "nf4"}};
  Pairs tight = nf4;
  tight.emplace_back("memory", std::to_string(smallest(nf4) - 1));
  const Made first = made({}), second = made(nf4), third = made({{"base_precision", "int8"}});
  EXPECT_GT(made(tight).shared, 0u);
}

TEST(SharedBases, AreNotThoseOfSessionsThatMayWriteThem) {
  const auto frozen = [] { return made_without_adapters({{"frozen", "*_proj.weight"}}); };
  const Made adapted = made({}), a = frozen(), b = frozen();
  EXPECT_EQ(a.shared, 0u);
  EXPECT_EQ(b.shared, 0u);
}

TEST(SharedBases, AreFilledOnceBySessionsThatAreMadeAtTheSameTime) {
  const std::vector<float> alone = losses(*made({}).session);
  std::vector<std::vector<float>> found(4);
  std::vector<std::thread> threads;
  for (std::vector<float> &one : found) threads.emplace_back([&one] { one = losses(*made({}).session); });
  for (std::thread &thread : threads) thread.join();
  for (const std::vector<float> &one : found) EXPECT_EQ(one, alone);
}

}  // namespace
}  // namespace protrain::session::shared_base_test
