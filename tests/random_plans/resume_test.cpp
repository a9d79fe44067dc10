// A run is saved under one plan, and resumed in another process under another plan. Every result must have the bits of
// a run that never stopped.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "draft/loaded_model.h"
#include "grad/training.h"
#include "random_plan.h"
#include "session/session.h"

namespace protrain::test::resume_test {
namespace {

constexpr int kPairs = 8, kLongest = 5;

std::string bytes_of(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

// The bits of a step's loss and norm, as the command writes them.
std::string bits_of(const session::StepResult &result) {
  return fmt::format("{:08x} {:08x}", std::bit_cast<std::uint32_t>(result.loss),
                     std::bit_cast<std::uint32_t>(static_cast<float>(result.grad_norm)));
}

struct Case {
  std::string model, precision, optimizer = "adamw";
};

class Resume : public testing::TestWithParam<Case> {
 protected:
  Resume() : model_(fixture(GetParam().model + ".onnx")) {
    draft::LoadedModel loaded = draft::load_model(draft::settings_of(options_with(options())), model_);
    graph_ = grad::build(std::move(loaded.prepared.graph), loaded.loss).graph;
  }

  Pairs options() const {
    Pairs pairs = base_options(GetParam().model);
    pairs.emplace_back("precision", GetParam().precision);
    pairs.emplace_back("optimizer", GetParam().optimizer);
    if (GetParam().optimizer == "adamw8bit") pairs.emplace_back("ema", "0.9");
    return pairs;
  }

  // The options of a run, with a plan drawn at random.
  Pairs drawn(Draw &draw, const Scratch &scratch) const {
    Pairs pairs = options();
    const auto order = GetParam().precision == "fp16" ? std::optional(plan::OptimizerOrder::barrier) : std::nullopt;
    plan::Plan plan = draw.plan(graph_, order);
    if (draw.chance(0.3)) plan = draw.deferring(std::move(plan));
    for (const Pairs &more : {following(plan, scratch), draw.trial()})
      pairs.insert(pairs.end(), more.begin(), more.end());
    return pairs;
  }

  std::unique_ptr<session::Session> session_of(const Pairs &pairs) const {
    return session::Session::create(options_with(pairs), model_, nullptr);
  }

  // Runs all steps without a stop, and saves after each.
  void run_whole() {
    const auto session = session_of(options());
    for (int i = 0; i < kLongest; ++i) {
      feed(*session, i);
      expected_.push_back(bits_of(session->step()));
      saved_.push_back(session->save(whole_.path()));
    }
  }

  // Resumes from `scratch` in another process and runs `steps` steps. Returns the bits of each step.
  std::vector<std::string> run_on(const Pairs &pairs, const Scratch &scratch, int steps) const {
    std::string command =
        fmt::format("{} train {} --steps {} --input input_ids={} --input labels={} --metrics {} --resume {} --save {}",
                    PROTRAIN_COMMAND, model_, steps, fixture("input_ids.npy"), fixture("labels.npy"),
                    scratch.path() + "/metrics", scratch.path(), scratch.path());
    for (const auto &[key, value] : pairs) command += fmt::format(" --set {}={}", key, value);
    EXPECT_EQ(std::system((command + " > " + scratch.path() + "/out 2>&1").c_str()), 0)
        << command << "\n"
        << bytes_of(scratch.path() + "/out");
    std::vector<std::string> bits;
    std::ifstream metrics(scratch.path() + "/metrics");
    for (std::string line; std::getline(metrics, line);) {
      const auto json = nlohmann::json::parse(line);
      bits.push_back(json["loss_bits"].get<std::string>() + " " + json["grad_norm_bits"].get<std::string>());
    }
    return bits;
  }

  std::string model_;
  graph::Graph graph_;
  Scratch whole_;
  std::vector<std::string> expected_, saved_;  // per step
};

TEST_P(Resume, UnderAnotherPlanInAnotherProcess) {
  run_whole();
  Draw draw(11);
  for (int i = 0; i < kPairs; ++i) {
    const Scratch scratch;
    const int before = 1 + draw.below(kLongest - 2), after = 1 + draw.below(kLongest - before);
    const Pairs first = drawn(draw, scratch);
    {
      const auto session = session_of(first);
      for (int s = 0; s < before; ++s) {
        feed(*session, s);
        ASSERT_EQ(bits_of(session->step()), expected_[static_cast<std::size_t>(s)]);
      }
      session->save(scratch.path());
    }
    const std::vector<std::string> bits = run_on(drawn(draw, scratch), scratch, after);
    ASSERT_EQ(bits, std::vector<std::string>(expected_.begin() + before, expected_.begin() + before + after))
        << "pair " << i << ", " << before << " steps and " << after;
    const auto last = std::filesystem::path(saved_[static_cast<std::size_t>(before + after - 1)]);
    for (const char *name : {"weights.safetensors", "optimizer.safetensors", "manifest.json"})
      ASSERT_TRUE(bytes_of(last / name) == bytes_of(scratch.path() / last.filename() / name)) << "pair " << i << name;
  }
}

const Case kCases[] = {{"gpt2-dynamic-opset18", "fp32"}, {"dropout-gpt", "fp32"},
                       {"batch-norm", "fp32"},           {"llama-dynamic-opset23", "bf16"},
                       {"gpt2-dynamic-opset23", "fp16"}, {"dropout-gpt", "bf16", "adamw8bit"}};
INSTANTIATE_TEST_SUITE_P(Models, Resume, testing::ValuesIn(kCases),
                         [](const auto &info) { return case_name(info.param.model + "-" + info.param.precision); });

}  // namespace
}  // namespace protrain::test::resume_test
