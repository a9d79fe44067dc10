// How fast are the CPU's products, attention and loss in float32 and in bfloat16?
//   bench_kernels [THREADS]
// On GPT-2 124M's shapes, 1024 rows at once. One line a kernel: milliseconds and GFLOP/s in each type, the best of many
// runs.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "backend/backend.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/shape.h"
#include "ops/op.h"

namespace {

using namespace protrain;

struct Work {
  std::string name;
  graph::Node node;  // with its attributes and outputs
  std::vector<Shape> inputs;
  double flops;
};

constexpr std::int64_t kBatch = 4, kSequence = 256, kRows = kBatch * kSequence, kWidth = 768, kClasses = 50257,
                       kHeads = 12, kDepth = 64;

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

// y = x w and its gradients; w (K, N), or (N, K) where trans_w.
void add_layer(const std::string &name, std::int64_t k, std::int64_t n, bool trans_w, std::vector<Work> &all) {
  const Shape x{kRows, k}, y{kRows, n}, w = trans_w ? Shape{n, k} : Shape{k, n};
  all.push_back(product(name, x, w, false, trans_w));
  all.push_back(product(name + " dx", y, w, false, !trans_w));
  all.push_back(trans_w ? product(name + " dw", y, x, true, false) : product(name + " dw", x, y, true, false));
}

std::vector<Work> all_work() {
  std::vector<Work> all;
  add_layer("qkv", kWidth, 3 * kWidth, false, all);
  add_layer("projection", kWidth, kWidth, false, all);
  add_layer("up", kWidth, 4 * kWidth, false, all);
  add_layer("down", 4 * kWidth, kWidth, false, all);
  add_layer("head", kWidth, kClasses, true, all);
  const graph::Attributes causal{{"scale", 0.125}, {"causal", std::int64_t{1}}};
  const Shape q{kBatch, kSequence, kHeads, kDepth}, lse{kBatch, kHeads, kSequence};
  const double pairs = static_cast<double>(kBatch * kHeads * kSequence * kSequence) / 2;
  all.push_back({"attention", node("FusedAttention", causal, 3, 2), {q, q, q}, pairs * 2 * 2 * kDepth});
  all.push_back(
      {"attention grad", node("FusedAttentionGrad", causal, 6, 3), {q, q, q, q, q, lse}, pairs * 5 * 2 * kDepth});
  const Shape x{kRows, kWidth}, w{kClasses, kWidth};
  const graph::Attributes mean{{"reduction", std::string("mean")}, {"trans_w", std::int64_t{1}}};
  const double head = 2.0 * static_cast<double>(kRows * kWidth * kClasses);
  all.push_back({"loss", node("LinearCrossEntropy", mean, 3, 1), {x, w, {kRows}}, head});
  all.push_back({"loss grad", node("LinearCrossEntropyGrad", mean, 3, 3), {x, w, {kRows}}, 3 * head});
  return all;
}

backend::KernelRequest request_of(const Work &work, DType type) {
  backend::KernelRequest request{work.node, {}, {}};
  ops::NodeTypes types{work.node, {}};
  for (const Shape &shape : work.inputs)
    request.inputs.push_back({shape.size() == 1 ? DType::i64 : (shape.size() == 3 ? DType::f32 : type), shape});
  for (const graph::Type &input : request.inputs) types.inputs.push_back(&input);
  request.outputs = ops::find(work.node.op)->infer(types);
  request.outputs.resize(work.node.outputs.size());
  return request;
}

// Numbers between 1 and 2, either sign; labels are 0.
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

struct Bound {
  backend::Device &device;
  backend::Kernel &kernel;
  backend::Launch launch;
};

double seconds_of(const Work &work, DType type, backend::Device &device, std::byte *arena) {
  const backend::KernelRequest request = request_of(work, type);
  const auto kernel = device.compile(request);
  std::vector<void *> inputs, outputs;
  auto take = [&](std::uint64_t bytes) { return std::exchange(arena, arena + round_up(bytes, 64)); };
  for (const graph::Type &input : request.inputs) {
    inputs.push_back(take(byte_count(input.dtype, input.shape)));
    fill(input, static_cast<std::byte *>(inputs.back()));
  }
  for (const graph::Type &output : request.outputs) outputs.push_back(take(byte_count(output.dtype, output.shape)));
  const backend::StepScalars scalars;
  Bound bound{device, *kernel, {inputs, outputs, arena, &scalars}};
  double best = 1e9;
  const auto begin = std::chrono::steady_clock::now();
  auto since = [](auto start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (int i = 0; i < 3 || since(begin) < 1; ++i) {
    const auto start = std::chrono::steady_clock::now();
    device.run_step(
        [](void *self) {
          auto &b = *static_cast<Bound *>(self);
          b.device.launch(Queue::compute, b.kernel, b.launch);
        },
        &bound);
    best = std::min(best, since(start));
  }
  return best;
}

void measure(int threads) {
  const auto device = backend::open("cpu", threads);
  auto *arena = static_cast<std::byte *>(device->allocate_arena(std::uint64_t{3} << 30));
  fmt::print("{}\n{:16}{:>10}{:>10}{:>10}{:>10}{:>8}\n", device->info().description, "", "f32 ms", "GFLOP/s", "bf16 ms",
             "GFLOP/s", "ratio");
  for (const Work &work : all_work()) {
    const double wide = seconds_of(work, DType::f32, *device, arena);
    const double narrow = seconds_of(work, DType::bf16, *device, arena);
    fmt::print("{:16}{:10.2f}{:10.0f}{:10.2f}{:10.0f}{:8.2f}\n", work.name, wide * 1e3, work.flops / wide * 1e-9,
               narrow * 1e3, work.flops / narrow * 1e-9, narrow / wide);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char **argv) try {
  measure(argc > 1 ? std::atoi(argv[1]) : 0);
} catch (const protrain::Error &error) {
  fmt::print(stderr, "{}: {}\n", error.subject, error.text);
  return 1;
}
