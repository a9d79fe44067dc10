// Measures the CPU's kernels in float32 and in bfloat16, and compares them with the processor's ceilings.
//   bench_kernels [--benchmark_filter=REGEX] [--benchmark_repetitions=N] [other options of Google Benchmark]
// The shapes are those of GPT-2 124M and LLaMA, 1024 rows at once, with as many threads as the process may use.
// Counters give a kernel's speed and its share of the ceiling. The speed is in GFLOP/s if arithmetic limits the kernel,
// and in GB/s if memory does (each operand read or written once).
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <cstring>

#include "backend/backend.h"
#include "backend/optimizer_numbers.h"
#include "base/error.h"
#include "base/shape.h"
#include "bench/ceilings.h"
#include "ops/op.h"

namespace {

using namespace protrain;

struct Work {
  std::string name;
  graph::Node node;  // with its attributes and outputs
  std::vector<Shape> inputs;
  double flops = 0;  // 0: memory limits the speed
};

constexpr std::int64_t kBatch = 4, kSequence = 256, kRows = kBatch * kSequence, kWidth = 768, kClasses = 50257,
                       kHeads = 12, kDepth = 64;
constexpr std::uint64_t kArenaBytes = std::uint64_t{3} << 30;

graph::Node node(const std::string &op, const graph::Attributes &attributes, int inputs, int outputs) {
  graph::Node node;
  node.op = op;
  node.attributes = attributes;
  std::int32_t id = 0;
  for (int i = 0; i < inputs; ++i) node.inputs.push_back(graph::ValueId{id++});
  for (int i = 0; i < outputs; ++i) node.outputs.push_back(graph::ValueId{id++});
  return node;
}

Work product(const std::string &name, const Shape &a, const Shape &b, bool trans_a, bool trans_b) {
  const graph::Attributes form{{"trans_a", std::int64_t{trans_a}}, {"trans_b", std::int64_t{trans_b}}};
  const std::int64_t elements = element_count(a), n = b[trans_b ? 0 : 1];
  return {name, node("MatMul", form, 2, 1), {a, b}, 2.0 * static_cast<double>(elements * n)};
}

// Adds the products of a linear layer y = x w and of its gradients. w is (k, n), or (n, k) if trans_w.
void add_layer(const std::string &name, std::int64_t k, std::int64_t n, bool trans_w, std::vector<Work> &all) {
  const Shape x{kRows, k}, y{kRows, n}, w = trans_w ? Shape{n, k} : Shape{k, n};
  all.push_back(product("product/" + name, x, w, false, trans_w));
  all.push_back(product("product/" + name + "_dx", y, w, false, !trans_w));
  all.push_back(trans_w ? product("product/" + name + "_dw", y, x, true, false)
                        : product("product/" + name + "_dw", x, y, true, false));
}

// Adds causal attention over (batch, sequence). A query sees at most `window` keys; 0: all.
void add_attention(const std::string &name, std::int64_t batch, std::int64_t sequence, std::int64_t window,
                   std::vector<Work> &all) {
  graph::Attributes form{{"scale", 0.125}, {"causal", std::int64_t{1}}};
  if (window > 0) form.set("window", window);
  const Shape q{batch, sequence, kHeads, kDepth}, lse{batch, kHeads, sequence};
  const std::int64_t seen = window > 0 ? window : sequence;
  const double pairs = static_cast<double>(batch * kHeads) *
                       (static_cast<double>(sequence * seen) - static_cast<double>(seen * (seen - 1)) / 2);
  all.push_back({"attention/" + name, node("FusedAttention", form, 3, 2), {q, q, q}, pairs * 2 * 2 * kDepth});
  all.push_back({"attention/" + name + "_grad",
                 node("FusedAttentionGrad", form, 6, 3),
                 {q, q, q, q, q, lse},
                 pairs * 5 * 2 * kDepth});
}

void add_loss(std::vector<Work> &all) {
  const Shape x{kRows, kWidth}, w{kClasses, kWidth};
  const graph::Attributes mean{{"reduction", std::string("mean")}, {"trans_w", std::int64_t{1}}};
  const double head = 2.0 * static_cast<double>(kRows * kWidth * kClasses);
  all.push_back({"loss/linear", node("LinearCrossEntropy", mean, 3, 1), {x, w, {kRows}}, head});
  all.push_back({"loss/linear_grad", node("LinearCrossEntropyGrad", mean, 3, 3), {x, w, {kRows}}, 3 * head});
}

// Adds kernels that read and write rows.
void add_rows(std::vector<Work> &all) {
  const Shape x{kRows, kWidth}, wide{kRows, 4 * kWidth}, scale{kWidth}, q{kBatch, kSequence, kHeads, kDepth},
      angles{kBatch, kSequence, kDepth / 2}, row{kRows, 1};
  const graph::Attributes tanh{{"approximate", std::string("tanh")}};
  all.push_back({"rows/layer_norm", node("LayerNormalization", {}, 3, 3), {x, scale, scale}});
  all.push_back({"rows/layer_norm_grad", node("LayerNormalizationGrad", {}, 5, 3), {x, x, scale, row, row}});
  all.push_back({"rows/rms_norm", node("RMSNormalization", {}, 2, 2), {x, scale}});
  all.push_back({"rows/rms_norm_grad", node("RMSNormalizationGrad", {}, 4, 2), {x, x, scale, row}});
  all.push_back({"rows/gelu", node("Gelu", tanh, 1, 1), {wide}});
  all.push_back({"rows/gelu_grad", node("GeluGrad", tanh, 2, 1), {wide, wide}});
  all.push_back({"rows/silu", node("Silu", {}, 1, 1), {wide}});
  all.push_back({"rows/silu_grad", node("SiluGrad", {}, 2, 1), {wide, wide}});
  all.push_back({"rows/rotary", node("Rotary", {}, 3, 1), {q, angles, angles}});
  all.push_back({"rows/add", node("Add", {}, 2, 1), {x, x}});
  all.push_back({"rows/softmax", node("Softmax", {}, 1, 1), {wide}});
}

std::vector<Work> all_work() {
  std::vector<Work> all;
  add_layer("qkv", kWidth, 3 * kWidth, false, all);
  add_layer("projection", kWidth, kWidth, false, all);
  add_layer("up", kWidth, 4 * kWidth, false, all);
  add_layer("down", 4 * kWidth, kWidth, false, all);
  add_layer("head", kWidth, kClasses, true, all);
  add_attention("256", kBatch, kSequence, 0, all);
  add_attention("4096", 1, 4096, 0, all);
  add_attention("4096_window_256", 1, 4096, 256, all);
  add_loss(all);
  add_rows(all);
  return all;
}

// Returns the request for the kernel on data of type `type`. Statistics are always float32, and labels int64.
backend::KernelRequest request_of(const Work &work, DType type) {
  backend::KernelRequest request{work.node, {}, {}};
  ops::NodeTypes types{work.node, {}};
  const std::string &op = work.node.op;
  for (std::size_t i = 0; i < work.inputs.size(); ++i) {
    DType dtype = type;
    if (op.starts_with("LinearCrossEntropy") && i == 2) dtype = DType::i64;
    if (op == "FusedAttentionGrad" && i == 5) dtype = DType::f32;
    if (op.ends_with("NormalizationGrad") && i >= 3) dtype = DType::f32;
    request.inputs.push_back({dtype, work.inputs[i]});
  }
  for (const graph::Type &input : request.inputs) types.inputs.push_back(&input);
  request.outputs = ops::find(op)->infer(types);
  request.outputs.resize(work.node.outputs.size());
  return request;
}

// Fills an operand with numbers of either sign and a size in [1/8, 1/4). Labels are 0.
void fill(const graph::Type &type, std::byte *to) {
  const std::uint64_t bytes = byte_count(type.dtype, type.shape);
  std::memset(to, 0, bytes);
  if (!is_float(type.dtype)) return;
  std::uint32_t state = 1;
  const std::size_t size = size_of(type.dtype);
  for (std::uint64_t at = size - 2; at < bytes; at += size) {
    state = state * 1664525 + 1013904223;
    const auto upper = static_cast<std::uint16_t>((state >> 31 << 15) | 0x3E00 | (state >> 20 & 0x7F));
    std::memcpy(to + at, &upper, 2);
  }
}

// The cpu device, its arena, and the ceilings.
struct Machine {
  std::unique_ptr<backend::Device> device = backend::open("cpu", 0);
  std::byte *arena = static_cast<std::byte *>(device->allocate_arena(kArenaBytes));
  bench::Ceilings ceilings;
};

// A kernel, and its operands, which lie one after another in the arena.
struct Bound {
  Machine &machine;
  std::unique_ptr<backend::Kernel> kernel;
  std::vector<void *> inputs = {}, outputs = {};
  double bytes = 0;  // of operands
  std::byte *end = machine.arena;

  void *take(const graph::Type &type) {
    const std::uint64_t size = byte_count(type.dtype, type.shape);
    bytes += static_cast<double>(size);
    std::byte *at = std::exchange(end, end + round_up(size, kAlignment));
    fill(type, at);
    return at;
  }
  void launch() {
    const backend::StepScalars scalars = {.update = {backend::numbers_of({}, 1e-3, 1)}};
    machine.device->launch(Queue::compute, *kernel, {inputs, outputs, end, &scalars});
  }
};

Bound bind(const Work &work, DType type, Machine &machine) {
  const backend::KernelRequest request = request_of(work, type);
  Bound bound{machine, machine.device->compile(request)};
  for (const graph::Type &input : request.inputs) bound.inputs.push_back(bound.take(input));
  for (const graph::Type &output : request.outputs) bound.outputs.push_back(bound.take(output));
  return bound;
}

// Returns an AdamW update of as many elements as GPT-2's largest layer has. Counts the bytes of weights and moments
// twice, because an update reads and writes them.
Bound bind_update(DType type, Machine &machine) {
  const std::int64_t elements = 4 * kWidth * kWidth;
  Bound bound{machine, machine.device->compile_update(
                           {.optimizer = {}, .elements = {elements}, .weights = type, .gradient = type})};
  const graph::Type data{type, {elements}}, moment{DType::f32, {elements}}, plane{DType::bf16, {elements}};
  bound.inputs = {bound.take(data), bound.take({DType::i32, {}})};
  std::memset(bound.inputs[1], 0, sizeof(std::uint32_t));
  bound.outputs = {bound.take(data)};
  if (type == DType::bf16) bound.outputs.push_back(bound.take(plane));
  for (int i = 0; i < 2; ++i) bound.outputs.push_back(bound.take(moment));
  for (const graph::Type &state : {data, moment, moment})
    bound.bytes += static_cast<double>(byte_count(state.dtype, state.shape));
  if (type == DType::bf16) bound.bytes += static_cast<double>(byte_count(plane.dtype, plane.shape));
  return bound;
}

// Runs all iterations of a benchmark inside one step of the device, so that a launch costs the same as in training.
void repeat(benchmark::State &state, Bound bound, double flops, double ceiling) {
  const auto run = [&] {
    bound.launch();
    for ([[maybe_unused]] auto _ : state) bound.launch();
  };
  const auto begin = std::chrono::steady_clock::now();
  bound.machine.device->run_step([](void *act) { (*static_cast<decltype(&run)>(act))(); },
                                 const_cast<void *>(static_cast<const void *>(&run)));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const double each = took.count() / static_cast<double>(state.iterations() + 1);
  const double work = flops > 0 ? flops : bound.bytes;
  state.counters[flops > 0 ? "GFLOP/s" : "GB/s"] = work / each * 1e-9;
  if (ceiling > 0) state.counters["of_ceiling"] = work / each / ceiling;
}

void add_benchmarks(Machine &machine) {
  const bench::Ceilings &most = machine.ceilings;
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::string suffix = fmt::format("/{}", name_of(type));
    for (const Work &work : all_work()) {
      const double ceiling = work.flops == 0 ? most.bandwidth : (type == DType::f32 ? most.fma : most.bf16_dot);
      benchmark::RegisterBenchmark(
          (work.name + suffix).c_str(),
          [=, &machine](benchmark::State &state) { repeat(state, bind(work, type, machine), work.flops, ceiling); })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
    benchmark::RegisterBenchmark(
        ("rows/adamw" + suffix).c_str(),
        [=, &machine](benchmark::State &state) { repeat(state, bind_update(type, machine), 0, most.bandwidth); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace

int main(int argc, char **argv) try {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  Machine machine;
  Team team(machine.device->info().threads, "bench");
  machine.ceilings = bench::measure_ceilings(team);
  benchmark::AddCustomContext("device", machine.device->info().description);
  const auto giga = [](double number) { return fmt::format("{:.1f}", number * 1e-9); };
  benchmark::AddCustomContext("ceiling_float32_gflops", giga(machine.ceilings.fma));
  benchmark::AddCustomContext("ceiling_bfloat16_gflops", giga(machine.ceilings.bf16_dot));
  benchmark::AddCustomContext("ceiling_gbs", giga(machine.ceilings.bandwidth));
  add_benchmarks(machine);
  benchmark::RunSpecifiedBenchmarks();
} catch (const protrain::Error &error) {
  fmt::print(stderr, "{}: {}\n", error.subject, error.text);
  return 1;
}
