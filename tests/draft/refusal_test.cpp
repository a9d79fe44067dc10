// Refusals of budgets that are too small. A refusal names the smallest budget that works, which must be exact to the
// byte. Every other change that it names must work too.
#include "draft/refusal.h"

#include <gtest/gtest.h>

#include "draft/plan_model.h"
#include "errors.h"
#include "random_plans/random_plan.h"
#include "session/session.h"

namespace protrain::draft::refusal_test {
namespace {

using test::error_of;
using test::Pairs;
using test::Scratch;

// Creates sessions of one model under different budgets.
class BudgetedSessions {
 public:
  explicit BudgetedSessions(const std::string &model, Pairs more = {})
      : model_(model), options_(test::base_options(model)) {
    options_.insert(options_.end(), more.begin(), more.end());
  }

  Error refusal(const Pairs &budgets) const {
    return error_of([&] { create(budgets); });
  }
  std::unique_ptr<session::Session> create(const Pairs &budgets) const {
    return session::Session::create(options(budgets), test::fixture(model_ + ".onnx"), nullptr);
  }
  // The answer of `protrain plan`.
  nlohmann::json planned(const Pairs &budgets) const {
    return nlohmann::json::parse(plan_model(options(budgets), test::fixture(model_ + ".onnx"), nullptr));
  }

 private:
  Options options(const Pairs &budgets) const {
    Pairs all = options_;
    all.insert(all.end(), budgets.begin(), budgets.end());
    return test::options_with(all);
  }

  const std::string model_;
  Pairs options_;
};

// Returns 1234 for "... the smallest needs 1234 bytes ...".
std::uint64_t figure_in(const Error &error) {
  const std::string mark = "smallest needs ";
  const std::size_t at = error.text.find(mark);
  if (at == std::string::npos) throw std::runtime_error("no figure in: " + error.text);
  return std::stoull(error.text.substr(at + mark.size()));
}

void expect_exact(const BudgetedSessions &sessions, const Pairs &others, const std::string &key) {
  const auto with = [&](std::uint64_t bytes) {
    Pairs pairs = others;
    pairs.emplace_back(key, std::to_string(bytes));
    return pairs;
  };
  const Error error = sessions.refusal(with(4096));
  ASSERT_EQ(error.code, Code::budget) << error.text;
  EXPECT_EQ(error.subject, key);
  const std::uint64_t figure = figure_in(error);
  SCOPED_TRACE(figure);
  const Error less = sessions.refusal(with(figure - 1));
  EXPECT_EQ(less.code, Code::budget);
  EXPECT_EQ(figure_in(less), figure) << "the figure does not depend on what was given";
  const std::unique_ptr<session::Session> session = sessions.create(with(figure));
  test::feed(*session, 0);
  EXPECT_GT(session->step().loss, 0);
  EXPECT_LE(nlohmann::json::parse(session->report_json())["device_peak_bytes"].get<std::uint64_t>(), figure);
}

TEST(Refusal, NamesTheSmallestMemoryThatWorks) {
  for (const char *model : {"gpt2-dynamic-opset18", "llama-dynamic-opset23", "dropout-gpt"})
    expect_exact(BudgetedSessions(model), {}, "memory");
}

TEST(Refusal, NamesTheSmallestMemoryThatWorksWithADisk) {
  const Scratch scratch;
  for (const char *model : {"gpt2-dynamic-opset18", "retention-dynamic-opset18"})
    expect_exact(BudgetedSessions(model), {{"offload_dir", scratch.path()}}, "memory");
}

TEST(Refusal, NamesTheSmallestMemoryThatWorksWhateverElseIsAskedFor) {
  for (const Pairs &more : {Pairs{{"clip_norm", "1"}, {"accumulation", "2"}, {"keep_gradients", "*"}},
                            Pairs{{"optimizer", "sgd"}, {"frozen", "*.h.*"}},
                            Pairs{{"shapes", "batch=1,sequence=16"}, {"shapes", "batch=4,sequence=8"}}}) {
    SCOPED_TRACE(more[0].first);
    const Scratch scratch;
    expect_exact(BudgetedSessions("gpt2-dynamic-opset18", more), {{"offload_dir", scratch.path()}}, "memory");
  }
}

TEST(Refusal, NamesHostMemoryWhereThatIsWhatLacks) {
  // The device gets memory that would just suffice if the host had 1 GiB. But the host gets only 4096 bytes.
  const BudgetedSessions sessions("gpt2-dynamic-opset18");
  const std::uint64_t device = figure_in(sessions.refusal({{"host_memory", "1GiB"}, {"device_memory", "4096"}}));
  const Error error = sessions.refusal({{"host_memory", "4096"}, {"device_memory", std::to_string(device)}});
  ASSERT_EQ(error.code, Code::budget) << error.text;
  EXPECT_TRUE(error.subject == "host_memory" || error.subject == "device_memory") << error.subject;
  Pairs pairs = {{"host_memory", "4096"}, {"device_memory", std::to_string(device)}};
  for (auto &[key, value] : pairs)
    if (key == error.subject) value = std::to_string(figure_in(error));
  EXPECT_EQ(sessions.refusal(pairs).code, Code::ok) << error.text;
}

TEST(Refusal, NamesTheSmallestDeviceMemoryThatWorks) {
  for (const char *model : {"gpt2-dynamic-opset18", "retention-dynamic-opset18"})
    expect_exact(BudgetedSessions(model), {{"host_memory", "1GiB"}}, "device_memory");
}

TEST(Refusal, ListsChangesEachOfWhichMakesAPlanFeasible) {
  const Scratch scratch;
  const BudgetedSessions sessions("gpt2-dynamic-opset18");
  for (const Pairs &budgets : {Pairs{{"memory", "100KiB"}}, Pairs{{"device_memory", "100KiB"}, {"host_memory", "1GiB"}},
                               Pairs{{"device_memory", "100KiB"}, {"host_memory", "100KiB"}}}) {
    const nlohmann::json plan = sessions.planned(budgets);
    ASSERT_FALSE(plan["feasible"].get<bool>());
    EXPECT_GE(plan["would_fit"].size(), 1u);
    for (const nlohmann::json &change : plan["would_fit"]) {
      Pairs changed = budgets;
      for (const auto &[key, value] : change["options"].items())
        changed.emplace_back(key, key == "offload_dir" ? scratch.path() : value.get<std::string>());
      if (change["options"].contains("dim")) continue;  // tested by NamesADimensionThatWorks
      EXPECT_TRUE(sessions.planned(changed)["feasible"].get<bool>()) << change.dump();
    }
  }
}

TEST(Refusal, NamesADirectoryWhereADiskWouldDo) {
  const Scratch scratch;
  const BudgetedSessions sessions("gpt2-dynamic-opset18");
  const std::uint64_t alone = figure_in(sessions.refusal({{"memory", "4096"}}));
  const std::uint64_t disk = figure_in(sessions.refusal({{"memory", "4096"}, {"offload_dir", scratch.path()}}));
  ASSERT_LT(disk, alone);
  const Pairs between = {{"memory", std::to_string((disk + alone) / 2)}};
  EXPECT_NE(sessions.refusal(between).text.find("offload_dir with"), std::string::npos)
      << sessions.refusal(between).text;
  Pairs with_disk = between;
  with_disk.emplace_back("offload_dir", scratch.path());
  EXPECT_EQ(sessions.refusal(with_disk).code, Code::ok);
  // 4096 bytes of memory are too few even with a disk. So the text must also say how much memory is needed together
  // with the disk.
  const Error both = sessions.refusal({{"memory", "4096"}});
  EXPECT_NE(both.text.find("of disk and memory=" + std::to_string(disk)), std::string::npos) << both.text;
}

TEST(Refusal, NamesADirectoryForAPlanThatUsesADisk) {
  const Scratch scratch;
  const BudgetedSessions sessions("gpt2-dynamic-opset18");
  Pairs pairs = {{"plan", scratch.file("plan.json", R"({"n_persist": 0, "n_host": 0, "n_buffer": 2})")}};
  const nlohmann::json plan = sessions.planned(pairs);
  ASSERT_FALSE(plan["feasible"].get<bool>());
  EXPECT_EQ(plan["would_fit"].at(0)["options"], (nlohmann::json{{"offload_dir", "DIR"}})) << plan["would_fit"].dump();
  pairs.emplace_back("offload_dir", scratch.path());
  EXPECT_TRUE(sessions.planned(pairs)["feasible"].get<bool>());
}

TEST(Refusal, NamesADimensionThatWorks) {
  const BudgetedSessions sessions("gpt2-dynamic-opset18");
  const std::uint64_t figure = figure_in(sessions.refusal({{"memory", "4096"}}));
  const nlohmann::json plan = sessions.planned({{"memory", std::to_string(figure - 1)}});
  ASSERT_FALSE(plan["feasible"].get<bool>());
  std::size_t tried = 0;
  for (const nlohmann::json &change : plan["would_fit"]) {
    if (!change["options"].contains("dim")) continue;
    Options options = test::options_with({{"memory", std::to_string(figure - 1)}, {"threads", "2"}});
    const std::string value = change["options"]["dim"];
    const std::string name = value.substr(0, value.find('='));
    options.set("dim", value);
    options.set("dim", name == "batch" ? "sequence=32" : "batch=2");
    EXPECT_NE(session::Session::create(options, test::fixture("gpt2-dynamic-opset18.onnx"), nullptr), nullptr) << value;
    ++tried;
  }
  EXPECT_EQ(tried, 2u) << plan["would_fit"].dump();
}

}  // namespace
}  // namespace protrain::draft::refusal_test
