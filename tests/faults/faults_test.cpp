// Lets allocations, file calls and thread creations in a session's life fail. There are two runs for each chosen call:
// one in which only this call fails, and one in which this call and all later ones fail. Each run is a process of its
// own. The parent process has done everything once before the fork, so that only leaks of the run itself are counted.
//   Environment variables choose the calls that fail. In this list, a place is a call stack from which calls are made.
//   PROTRAIN_FAULTS=all      each call of each part; the default is a sample of the places
//   PROTRAIN_FAULTS=sites    each place once, in the first model that reaches it
//   PROTRAIN_FAULTS=N        N places of each part, for each kind
//   PROTRAIN_FAULTS_PARTS=plan,save  PROTRAIN_FAULTS_KINDS=file  PROTRAIN_FAULTS_MODES=on    only these
//   PROTRAIN_FAULTS_SHOW=1   prints call stacks of faults, signals and leaked blocks to stderr
//   PROTRAIN_FAULT=gpt2/create/memory/once/123    one run, in this process, with call stacks
#include <execinfo.h>
#include <gtest/gtest.h>
#include <oneapi/dnnl/dnnl.h>
#include <protrain.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>
#include <string_view>
#include <unordered_set>

#include "faults/scenario.h"
#include "fixtures.h"
#include "scratch.h"

namespace protrain::test::faults_test {
namespace {

constexpr unsigned kSeconds = 120;  // a run that takes longer counts as hanging
constexpr const char *kKindNames[] = {"memory", "file", "thread"};

// The cheapest models come first, because PROTRAIN_FAULTS=sites tries a place only in the first model that reaches it.
const std::vector<Model> kModels = {
    {"mse", "families/loss-mse.dynamo18.onnx", {{"dim", "batch=4"}, {"clip_norm", "1"}}},
    {"cold", "families/loss-mse.dynamo18.onnx", {{"dim", "batch=4"}}, "", true},
    {"lora",
     "families/loss-mse.dynamo18.onnx",
     {{"dim", "batch=4"}, {"lora", "up.weight"}, {"lora", "down.weight"}, {"precision", "bf16"}, {"ema", "0.9"}},
     R"({"n_persist": 0, "n_buffer": 2, "n_host": 0, "n_swap": 0, "n_checkpoint": 0, "piece_bytes": 4096})",
     false,
     true},
    {"gpt2", "gpt2-dynamic-opset18.onnx", {{"dim", "batch=1"}, {"dim", "sequence=8"}}},
    {"llama", "llama-dynamic-opset23.onnx", {{"dim", "batch=1"}, {"dim", "sequence=8"}, {"precision", "bf16"}}},
    {"disk",
     "gpt2-dynamic-opset18.onnx",
     {{"dim", "batch=1"}, {"dim", "sequence=8"}},
     R"({"n_persist": 0, "n_buffer": 2, "n_host": 0, "n_swap": 2, "n_checkpoint": 9, "piece_bytes": 4096})"}};

void show_signals() {
  const auto show = [](int number) {
    void *frames[40];
    backtrace_symbols_fd(frames, backtrace(frames, 40), 2);
    signal(number, SIG_DFL);
    raise(number);
  };
  for (const int number : {SIGABRT, SIGSEGV}) signal(number, show);
}

// Memory that a child writes and its parent reads.
template <typename T>
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t count) : bytes_(count * sizeof(T)) {
    at_ = static_cast<T *>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  SharedMemory(const SharedMemory &) = delete;
  SharedMemory &operator=(const SharedMemory &) = delete;
  ~SharedMemory() { munmap(at_, bytes_); }
  T *get() const { return at_; }

 private:
  std::size_t bytes_;
  T *at_;
};

constexpr std::size_t kEveryCall = ~std::size_t{0};

struct Tally {
  int runs = 0, refused = 0, lost = 0, aborts = 0, hangs = 0, memory = 0, descriptors = 0, threads = 0, others = 0;
  bool clean() const { return aborts + hangs + memory + descriptors + threads + others == 0; }
};

class Faults : public testing::TestWithParam<Model> {
 protected:
  void SetUp() override {
    furnish(GetParam(), origin_.path());
    for (const char *name : {"run", "out"}) std::filesystem::remove_all(origin_ / name);
    furnish(GetParam(), origin_.path());  // once more, now that the caches are filled
  }

  // Does the run in a child process. Returns the child's status in waitpid's form.
  int run_apart(Part part, const Fault &fault, std::uint64_t *sites) {
    *shared_.get() = {};
    const std::string at = scratch_ / "run";
    const pid_t child = fork();
    if (child == 0) {
      alarm(kSeconds);
      if (std::getenv("PROTRAIN_FAULTS_SHOW") != nullptr) {
        show_signals();
        show_stacks();
      } else if (std::freopen("/dev/null", "w", stderr) == nullptr)  // hides the message that an abort would print
        _exit(2);
      run(GetParam(), part, {.origin = origin_.path(), .at = at}, fault, sites, *shared_.get());
      show_blocks_left();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    std::filesystem::remove_all(at);
    return status;
  }

  std::vector<std::uint64_t> choose(Part part, Kind kind, std::uint64_t calls, const std::uint64_t *sites,
                                    std::size_t sample) const {
    std::vector<std::uint64_t> chosen;
    const char *mode = std::getenv("PROTRAIN_FAULTS");
    const std::string asked = mode == nullptr ? "" : mode;
    calls = std::min<std::uint64_t>(calls, kMostCalls);
    // The hashes of places in different children can be compared, because all children are forked from one process and
    // so have their code at the same addresses.
    static std::map<std::pair<Part, Kind>, std::unordered_set<std::uint64_t>> of_all_models;
    std::unordered_set<std::uint64_t> of_this_model;
    auto &seen = asked == "sites" ? of_all_models[{part, kind}] : of_this_model;
    for (std::uint64_t i = 0; i < calls; ++i)
      if (asked == "all" || sample == kEveryCall || seen.insert(sites[i]).second) chosen.push_back(i);
    if (asked == "all" || asked == "sites") return chosen;
    if (!asked.empty()) sample = std::stoul(asked);
    if (chosen.size() <= sample) return chosen;
    // Keeps `sample` of the chosen calls, spread evenly. Each model begins at another offset, so that all models
    // together try more places.
    const auto model = std::ranges::find(kModels, std::string_view(GetParam().name), &Model::name) - kModels.begin();
    std::vector<std::uint64_t> few;
    for (std::size_t i = 0; i < sample; ++i)
      few.push_back(chosen[(i * kModels.size() + model) * chosen.size() / (sample * kModels.size())]);
    return few;
  }

  // True if this model comes before the one that PROTRAIN_FAULTS_FROM names. In such a model no call is made to fail.
  // Its places are only recorded, so that later models leave them out.
  static bool comes_before_those_asked_for() {
    const char *first = std::getenv("PROTRAIN_FAULTS_FROM");
    if (first == nullptr) return false;
    for (const Model &model : kModels) {
      if (std::string(model.name) == first) return false;
      if (std::string(model.name) == GetParam().name) return true;
    }
    return false;
  }

  void judge(int status, const std::string &name, std::uint64_t expected, Tally &tally) {
    const Outcome &o = *shared_.get();
    ++tally.runs;
    tally.refused += o.code != 0;
    tally.lost += o.lost;
    std::string wrong;
    const bool hang = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    const auto add = [&](int &count, const std::string &text) {
      wrong += text;
      ++count;
    };
    if (hang)
      add(tally.hangs, "hangs");
    else if (WIFSIGNALED(status))
      add(tally.aborts, "ends by signal " + std::to_string(WTERMSIG(status)));
    else if (!o.over)
      add(tally.aborts, "ends the process");
    else {
      if (o.blocks != 0) add(tally.memory, std::to_string(o.blocks) + " blocks of memory left; ");
      if (o.descriptors != 0) add(tally.descriptors, std::to_string(o.descriptors) + " descriptors left; ");
      if (o.threads != 0) add(tally.threads, std::to_string(o.threads) + " threads left; ");
      if (*o.problem != 0)
        add(tally.others, o.problem);
      else if (!o.lost && !o.partly && o.result != expected)
        add(tally.others, "losses, parameters or files differ from those without a fault");
    }
    if (wrong.empty()) return;
    if (shown_++ < kMostShown)
      ADD_FAILURE() << "PROTRAIN_FAULT=" << name << ": " << wrong << (o.code != 0 ? " after " : "") << o.text;
  }

  void try_all(Part part, Kind kind, std::size_t sample) {
    const int quiet = run_apart(part, {.kind = kind}, sites_.get());
    const Outcome plain = *shared_.get();
    ASSERT_EQ(quiet, 0) << "without a fault";
    ASSERT_STREQ(plain.problem, "") << kPartNames[static_cast<int>(part)];
    ASSERT_EQ(plain.blocks + plain.descriptors + plain.threads, 0)
        << "without a fault, " << kPartNames[static_cast<int>(part)] << ": " << plain.blocks << " blocks, "
        << plain.descriptors << " descriptors, " << plain.threads << " threads";
    const std::vector<std::uint64_t> chosen = choose(part, kind, plain.calls, sites_.get(), sample);
    if (comes_before_those_asked_for()) return;
    const char *modes = std::getenv("PROTRAIN_FAULTS_MODES");
    for (const bool from_then_on : {false, true}) {
      if (modes != nullptr &&
          ("," + std::string(modes) + ",").find(from_then_on ? ",on," : ",once,") == std::string::npos)
        continue;
      Tally tally;
      for (const std::uint64_t n : chosen) {
        const int status = run_apart(part, {kind, n, from_then_on}, nullptr);
        char name[200];
        snprintf(name, sizeof name, "%s/%s/%s/%s/%lu", GetParam().name, kPartNames[static_cast<int>(part)],
                 kKindNames[static_cast<int>(kind)], from_then_on ? "on" : "once", static_cast<unsigned long>(n));
        judge(status, name, plain.result, tally);
      }
      std::printf(
          "[ figures  ] %-6s %-7s %-6s %-4s of %6lu calls %5d runs, %5d refused, %3d sessions lost: %d aborts, %d "
          "hangs, "
          "leaks %d memory %d descriptors %d threads, %d others\n",
          GetParam().name, kPartNames[static_cast<int>(part)], kKindNames[static_cast<int>(kind)],
          from_then_on ? "on" : "once", static_cast<unsigned long>(plain.calls), tally.runs, tally.refused, tally.lost,
          tally.aborts, tally.hangs, tally.memory, tally.descriptors, tally.threads, tally.others);
      std::fflush(stdout);
      EXPECT_TRUE(tally.clean());
    }
  }

  static constexpr int kMostShown = 40;
  int shown_ = 0;
  Scratch origin_, scratch_;
  SharedMemory<Outcome> shared_{1};
  SharedMemory<std::uint64_t> sites_{kMostCalls};
};

// Does the run that PROTRAIN_FAULT names, in this process, so that a debugger can follow it. Returns false if the
// variable is not set.
bool only_one(const Model &model, const std::string &origin, const std::string &at) {
  const char *asked = std::getenv("PROTRAIN_FAULT");
  if (asked == nullptr) return false;
  char name[20], part[20], kind[20], mode[20];
  unsigned long n = 0;
  if (std::sscanf(asked, "%19[^/]/%19[^/]/%19[^/]/%19[^/]/%lu", name, part, kind, mode, &n) != 5 ||
      std::string(name) != model.name)
    return true;
  Outcome outcome;
  const auto of = [](const auto &names, const char *wanted) {
    return std::find(std::begin(names), std::end(names), std::string(wanted)) - std::begin(names);
  };
  show_stacks();
  show_signals();
  const Fault fault{static_cast<Kind>(of(kKindNames, kind)), n, std::string(mode) == "on"};
  run(model, static_cast<Part>(of(kPartNames, part)), {.origin = origin, .at = at}, fault, nullptr, outcome);
  show_blocks_left();
  std::printf("code %d at %s: %s\n%s\n%d blocks, %d descriptors, %d threads left%s\n", outcome.code, outcome.stage,
              outcome.text, outcome.problem, outcome.blocks, outcome.descriptors, outcome.threads,
              outcome.lost ? ", session lost" : "");
  return true;
}

TEST_P(Faults, AreErrorsAndLeaveNothingBehind) {
  if (only_one(GetParam(), origin_.path(), scratch_ / "run")) return;
  const char *parts = std::getenv("PROTRAIN_FAULTS_PARTS"), *kinds = std::getenv("PROTRAIN_FAULTS_KINDS");
  for (const Part part :
       {Part::check, Part::plan, Part::create, Part::use, Part::adapt, Part::save, Part::export_model, Part::resume}) {
    if (part == Part::adapt && !GetParam().adapts) continue;
    if (parts != nullptr && std::string(parts).find(kPartNames[static_cast<int>(part)]) == std::string::npos) continue;
    for (const Kind kind : {Kind::memory, Kind::file, Kind::thread}) {
      if (kinds != nullptr && std::string(kinds).find(kKindNames[static_cast<int>(kind)]) == std::string::npos)
        continue;
      try_all(part, kind, 1);
    }
  }
}

// The weights, the optimizer's arrays and the sums of gradients of these models lie on the disk.
constexpr const char *kOnDisk =
    R"({"n_persist": 0, "n_buffer": 2, "n_host": 0, "n_swap": 0, "n_checkpoint": 0, "piece_bytes": 4096})";
const Model kOneBatch = {"one-batch", "families/loss-mse.dynamo18.onnx", {{"dim", "batch=4"}}, kOnDisk};
const Model kTwoBatches = {
    .name = "two-batches", .file = kOneBatch.file, .options = kOneBatch.options, .plan = kOnDisk, .batches = 2};

// A session traces a NaN, and checks its gradients, by running a step again. The second run writes the weights again.
class SecondRun : public Faults {};
TEST_P(SecondRun, OfAStepLosesNoWeightsOnAFailingDiskUnsaid) { try_all(Part::trace, Kind::file, kEveryCall); }
INSTANTIATE_TEST_SUITE_P(Models, SecondRun, testing::Values(kOneBatch));

class SumsOnDisk : public Faults {};
TEST_P(SumsOnDisk, AreNotReadAfterAWriteThatFailed) { try_all(Part::sum, Kind::file, kEveryCall); }
INSTANTIATE_TEST_SUITE_P(Models, SumsOnDisk, testing::Values(kTwoBatches));

// A piece of the disk can hold many parameters. Reading them one by one reads the piece for each of them.
TEST(FlatParameters, AreReadFromTheDiskPieceByPiece) {
  const Scratch scratch;
  std::ofstream(scratch / "plan.json") << kOnDisk;
  protrain_options *options = nullptr;
  protrain_session *session = nullptr;
  ASSERT_EQ(protrain_options_create(&options), nullptr);
  for (const auto &[key, value] : std::vector<std::pair<const char *, std::string>>{
           {"dim", "batch=4"}, {"plan", scratch / "plan.json"}, {"offload_dir", scratch.path()}})
    ASSERT_EQ(protrain_options_set(options, key, value.c_str()), nullptr);
  ASSERT_EQ(protrain_session_create(options, fixture(kOneBatch.file).c_str(), &session), nullptr);
  std::size_t count = 0, elements = 0;
  ASSERT_EQ(protrain_session_flat_parameters_elements(session, &elements), nullptr);
  std::vector<float> values(elements);

  arm({.kind = Kind::file});
  ASSERT_EQ(protrain_session_parameter_count(session, &count), nullptr);
  for (std::size_t p = 0; p < count; ++p) {
    const char *name = nullptr;
    std::size_t own = 0;
    ASSERT_EQ(protrain_session_parameter_name(session, p, &name), nullptr);
    ASSERT_EQ(protrain_session_parameter_elements(session, p, &own), nullptr);
    ASSERT_EQ(protrain_session_parameter_read(session, name, values.data(), own), nullptr);
  }
  const std::uint64_t one_by_one = counted();
  arm({.kind = Kind::file});
  ASSERT_EQ(protrain_session_flat_parameters_read(session, values.data(), elements), nullptr);
  EXPECT_LT(counted(), one_by_one);
  EXPECT_GT(counted(), 0u);
  disarm();
  protrain_session_destroy(session);
  protrain_options_destroy(options);
}

// Limits the address space, like `ulimit -v`, to `more` MiB above the present use. The run must succeed or
// fail with an error, but not crash.
TEST(AddressSpace, ThatIsTooSmallIsAnErrorOrEnough) {
  const Scratch origin, scratch;
  const SharedMemory<Outcome> shared(1);
  const Model &model = kModels[0];
  furnish(model, origin.path());
  int refused = 0, made = 0;
  for (std::uint64_t more = 1; more <= 160; more += more < 64 ? 1 : 16) {
    *shared.get() = {};
    const pid_t child = fork();
    if (child == 0) {
      alarm(kSeconds);
      dnnl_set_primitive_cache_capacity(0);  // all of oneDNN's code is generated again
      std::uint64_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const rlim_t bytes = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) + (more << 20);
      const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
      setrlimit(RLIMIT_AS, &limit);
      try {
        run(model, Part::create, {.origin = origin.path(), .at = scratch / "run"}, {}, nullptr, *shared.get());
      } catch (const std::bad_alloc &) {  // the test's own allocation failed
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    std::filesystem::remove_all(scratch / "run");
    const Outcome &o = *shared.get();
    EXPECT_TRUE(WIFEXITED(status)) << more << " MiB more: signal " << WTERMSIG(status);
    EXPECT_TRUE(o.code == 0 || o.code == PROTRAIN_ERROR_NOMEM || o.code == PROTRAIN_ERROR_BUDGET) << o.text;
    refused += o.code != 0;
    made += o.over && o.code == 0;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(made, 0) << "no limit was wide enough: the test proves little";
}

INSTANTIATE_TEST_SUITE_P(Models, Faults, testing::ValuesIn(kModels),
                         [](const auto &info) { return std::string(info.param.name); });

}  // namespace
}  // namespace protrain::test::faults_test
