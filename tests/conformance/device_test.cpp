// Device functions that belong to no operator: updates, checks, random numbers, and events that order the queues.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <thread>

#include "arith/planes.h"
#include "backend/cuda/device.h"
#include "backend/cuda/runtime.h"
#include "backend/issue.h"
#include "base/memory.h"
#include "conformance/arena.h"
#include "conformance/contest.h"
#include "cuda/emulation.h"
#include "errors.h"

namespace protrain::test::device_test {
namespace {

PROTRAIN_FAMILY(UpdateKernel);
PROTRAIN_FAMILY(CheckKernel);
PROTRAIN_FAMILY(DropoutKernel);
PROTRAIN_FAMILY(UniformKernel);
PROTRAIN_FAMILY(Queues);

using backend::Device;
using backend::Optimizer;

using Bytes = std::vector<std::byte>;
template <typename T>
Bytes bytes_of(const std::vector<T> &values) {
  const auto *begin = reinterpret_cast<const std::byte *>(values.data());
  return {begin, begin + values.size() * sizeof(T)};
}
template <typename T>
Bytes narrowed(const std::vector<float> &values) {
  std::vector<T> narrow;
  for (float value : values) narrow.push_back(arith::narrowed<T>(value));
  return bytes_of(narrow);
}
Bytes stored(DType dtype, const std::vector<float> &values) {
  return dtype == DType::f16    ? narrowed<arith::f16>(values)
         : dtype == DType::bf16 ? narrowed<arith::bf16>(values)
                                : bytes_of(values);
}

template <typename T>
std::vector<Bytes> planes_of(const std::vector<float> &masters) {
  std::vector<T> high;
  std::vector<arith::LowPlane<T>> low;
  for (float master : masters) {
    const arith::Planes<T> planes = arith::split<T>(master);
    high.push_back(planes.high), low.push_back(planes.low);
  }
  return {bytes_of(high), bytes_of(low)};
}

// Element types of weights and gradient.
struct Form {
  DType weights, gradient;
};

// The arrays before an update: weights (16-bit ones as two planes), and the optimizer's state, which is all zeros.
std::vector<Bytes> untrained(const Optimizer &optimizer, const Form &form) {
  std::vector<Bytes> arrays = {bytes_of(wave(0.7))};
  if (form.weights == DType::bf16) arrays = planes_of<arith::bf16>(wave(0.7));
  if (form.weights == DType::f16) arrays = planes_of<arith::f16>(wave(0.7));
  for (const graph::OptimizerArray &array : optimizer.state()) arrays.emplace_back(array.bytes(1003));
  return arrays;
}

// The arrays after three steps. If `alone`, the steps use launch_alone(), on the calling thread and in the host's
// memory.
std::vector<Bytes> trained(const Machine &machine, const Optimizer &optimizer, const Form &form, std::uint32_t status,
                           bool alone) {
  Device &device = *machine.device;
  const auto kernel = device.compile_update(
      {.optimizer = optimizer, .elements = {1003}, .weights = form.weights, .gradient = form.gradient});
  Arena arena(machine);
  std::vector<Bytes> host = untrained(optimizer, form);
  Bytes gradient = stored(form.gradient, wave(0.3));
  std::vector<float> scales = {0.75F};
  std::vector<std::uint32_t> statuses = {status};
  const auto place = [&](auto &values) -> void * { return alone ? values.data() : arena.put(values); };
  std::vector<void *> inputs = {place(gradient), place(statuses), place(scales)}, outputs;
  for (Bytes &array : host) outputs.push_back(place(array));
  for (int t = 1; t <= 3; ++t) {
    const backend::StepScalars scalars = numbers(optimizer, t);
    const backend::Launch launch{inputs, outputs, nullptr, &scalars};
    if (alone)
      device.launch_alone(*kernel, launch);
    else
      step(device, [&] { device.launch(Queue::compute, *kernel, launch); });
  }
  if (alone) return host;
  for (std::size_t i = 0; i < host.size(); ++i)
    host[i] = arena.take(static_cast<const std::byte *>(outputs[i]), host[i].size());
  return host;
}

constexpr Form kForms[] = {{DType::f32, DType::f32},
                           {DType::bf16, DType::f32},
                           {DType::bf16, DType::bf16},
                           {DType::f16, DType::f32},
                           {DType::f16, DType::f16}};
const std::vector<Optimizer> kOptimizers = {
    {},
    {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1, .clip_value = 0.4},
    {.kind = Optimizer::Kind::sgd, .weight_decay = 0.1},
    {.kind = Optimizer::Kind::sgd, .weight_decay = 0.01, .momentum = 0.9},
    {.kind = Optimizer::Kind::assign},
    {.kind = Optimizer::Kind::sgd, .nesterov = true, .momentum = 0.9, .dampening = 0.3},
    {.kind = Optimizer::Kind::adagrad, .rate_decay = 0.1},
    {.correction = Optimizer::Correction::rate, .decoupled = false, .earlier_steps = -1},
    {.kind = Optimizer::Kind::lion, .weight_decay = 0.1},
    {.kind = Optimizer::Kind::sgd, .average = 0.9},
    {.average = 0.9},
    {.coded = true},
    {.coded = true, .average = 0.9, .clip_value = 0.4},
};

TEST_P(UpdateKernel, BitsAreTheCpusWhereverItRuns) {
  const Contender &cpu = contenders()[0];
  for (const Form &form : kForms)
    for (const Optimizer &optimizer : kOptimizers)
      for (std::uint32_t status : {0U, 5U}) {
        if (!GetParam()->computes_in(form.weights)) {
          EXPECT_THROW(trained(*GetParam()->ways[0].machine, optimizer, form, status, false), Error);
          continue;
        }
        const std::vector<Bytes> right = trained(*cpu.ways[0].machine, optimizer, form, status, false);
        EXPECT_EQ(right == untrained(optimizer, form), status != 0);
        for (bool alone : {false, true})
          EXPECT_TRUE(trained(*GetParam()->ways[0].machine, optimizer, form, status, alone) == right)
              << name_of(form.weights) << " by " << name_of(form.gradient) << ", alone: " << alone;
      }
}

TEST_P(UpdateKernel, SeveralParametersTakeTheStepThatEachWouldAlone) {
  const Machine &machine = *GetParam()->ways[0].machine;
  Device &device = *machine.device;
  const Optimizer optimizer;
  std::vector<std::int64_t> elements = {1003, 0, 4, 5000, 33};
  for (int i = 0; i < 40; ++i) elements.push_back(i + 1);
  // The arrays of each parameter after three steps.
  const auto trained = [&](const std::vector<std::int64_t> &counts) {
    const auto kernel = device.compile_update({.optimizer = optimizer, .elements = counts});
    Arena arena(machine);
    std::vector<void *> inputs, outputs;
    for (std::int64_t count : counts) inputs.push_back(arena.put(wave(0.3, static_cast<std::size_t>(count))));
    inputs.push_back(arena.put(std::vector<std::uint32_t>{0}));
    for (std::int64_t count : counts)
      for (double frequency : {0.7, 0.0, 0.0})
        outputs.push_back(arena.put(wave(frequency, static_cast<std::size_t>(count))));
    for (int t = 1; t <= 3; ++t) {
      const backend::StepScalars scalars = numbers(optimizer, t);
      step(device, [&] { device.launch(Queue::compute, *kernel, {inputs, outputs, nullptr, &scalars}); });
    }
    std::vector<std::vector<float>> arrays;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      arrays.push_back(arena.take(static_cast<const float *>(outputs[i]), static_cast<std::size_t>(counts[i / 3])));
    return arrays;
  };
  const auto together = trained(elements);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const auto alone = trained({elements[i]});
    for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(together[3 * i + k], alone[k]) << i;
    EXPECT_EQ(alone[0] == wave(0.7, static_cast<std::size_t>(elements[i])), elements[i] == 0);
  }
}

TEST_P(CheckKernel, MarksTheFirstOfSeveralScalars) {
  const Machine &machine = *GetParam()->ways[0].machine;
  std::vector<std::uint32_t> words;
  for (std::uint32_t i = 0; i < 70; ++i) words.push_back(2 + i);
  const auto kernel = machine.device->compile_check(DType::f64, words);
  for (const std::vector<std::size_t> &wrong :
       {std::vector<std::size_t>{}, {0}, {31}, {32}, {69}, {40, 5}, {69, 33, 34}}) {
    std::vector<double> values(words.size(), 1e300);
    for (std::size_t i : wrong) values[i] = i % 2 == 0 ? HUGE_VAL : std::nan("");
    Arena arena(machine);
    std::vector<void *> inputs;
    for (double value : values) inputs.push_back(arena.put(std::vector<double>{value}));
    auto *at = arena.put(std::vector<std::uint32_t>{0}), *copy = arena.put(std::vector<std::uint32_t>{99});
    std::vector<void *> outputs = {at, copy};
    step(*machine.device, [&] { machine.device->launch(Queue::compute, *kernel, {inputs, outputs}); });
    EXPECT_EQ(arena.take(at, 1)[0], wrong.empty() ? 0 : words[*std::ranges::min_element(wrong)]);
    EXPECT_EQ(arena.take(copy, 1), arena.take(at, 1));
  }
}

TEST_P(CheckKernel, MarksTheFirstScalarThatIsNotFinite) {
  const Machine &machine = *GetParam()->ways[0].machine;
  const auto marked = [&]<typename T>(T value, std::uint32_t status) {
    const auto kernel = machine.device->compile_check(std::is_same_v<T, float> ? DType::f32 : DType::f64, {3});
    Arena arena(machine);
    std::vector<void *> inputs = {arena.put(std::vector<T>{value})};
    auto *at = arena.put(std::vector<std::uint32_t>{status}), *copy = arena.put(std::vector<std::uint32_t>{99});
    std::vector<void *> outputs = {at, copy};
    step(*machine.device, [&] { machine.device->launch(Queue::compute, *kernel, {inputs, outputs}); });
    EXPECT_EQ(arena.take(at, 1), arena.take(copy, 1));
    return arena.take(at, 1)[0];
  };
  EXPECT_EQ(marked(1.5F, 0), 0U);
  EXPECT_EQ(marked(std::nanf(""), 0), 3U);
  EXPECT_EQ(marked(HUGE_VALF, 0), 3U);
  EXPECT_EQ(marked(-HUGE_VAL, 0), 3U);
  EXPECT_EQ(marked(-HUGE_VAL, 2), 2U);
  EXPECT_EQ(marked(1e300, 0), 0U);
}

TEST_P(DropoutKernel, NumbersAreTheCpus) {
  for (const auto &[shape, samples] : {std::pair<Shape, std::int64_t>{{6, 1031}, 6},
                                       {{6, 1031}, 2},
                                       {{6, 1031}, 0},
                                       {{300, 1}, 300},
                                       {{2, 3, 5}, 2},
                                       {{}, 0},
                                       {{0, 4}, 0}})
    for (bool wants_mask : {true, false}) {
      const OneNode one{"Dropout",
                        {{"key", std::int64_t{7}}, {"ratio", 0.3}, {"samples", samples}},
                        {random_floats(shape, 2)},
                        {true, wants_mask}};
      const auto dropped = [&](const Contender &contender) {
        NodeBench bench(one, *contender.ways[0].machine);
        bench.run({.step = 3, .seed = 11, .first_sample = 4});
        bench.expect_guards();
        return bench.results();
      };
      const std::vector<Array> right = dropped(contenders()[0]), found = dropped(*GetParam());
      EXPECT_TRUE(found[0].same_as(right[0])) << to_text(shape);
      if (wants_mask) {
        EXPECT_TRUE(found[1].same_as(right[1])) << to_text(shape);
      }
    }
}

TEST_P(UniformKernel, NumbersAreTheCpus) {
  for (const auto &[shape, samples] :
       {std::pair<Shape, std::int64_t>{{6, 1031}, 6}, {{6, 1031}, 0}, {{300, 1}, 300}, {{}, 0}, {{0, 4}, 0}}) {
    const OneNode one{"Uniform", {{"key", std::int64_t{7}}, {"samples", samples}, {"shape", shape}}, {}};
    const auto drawn = [&](const Contender &contender) {
      NodeBench bench(one, *contender.ways[0].machine);
      bench.run({.step = 3, .seed = 11, .first_sample = 4});
      bench.expect_guards();
      return bench.results()[0];
    };
    EXPECT_TRUE(drawn(*GetParam()).same_as(drawn(contenders()[0]))) << to_text(shape);
  }
}

// The first queue uploads x, the second doubles it, the third downloads the result. Only events keep them in order.
TEST_P(Queues, EventsOrderWhatRunsBesideEachOther) {
  const Machine &machine = *GetParam()->ways[0].machine;
  Device &device = *machine.device;
  if (!device.info().asynchronous) {
    try {
      device.reserve_events(1);
      FAIL() << "events were taken";
    } catch (const Error &error) {
      EXPECT_EQ(error.code, Code::internal);
    }
    return;
  }
  constexpr std::size_t kRounds = 20, kElements = 1000;
  device.reserve_events(3 * kRounds);
  const Type type{DType::f32, {kElements}};
  const graph::Node node{.op = "Add", .name = "twice"};
  const auto kernel = device.compile({node, {type, type}, {type}});
  Arena arena(machine);
  std::vector<std::vector<float>> there(kRounds), back(kRounds, std::vector<float>(kElements));
  for (std::size_t i = 0; i < kRounds; ++i) there[i] = wave(0.1 * double(i + 1), kElements);
  float *x = arena.put(there[0]), *y = arena.put(there[0]);
  std::vector<void *> inputs = {x, x}, outputs = {y};
  const std::uint64_t bytes = kElements * sizeof(float);
  EXPECT_EQ(device.pin(there[0].data(), bytes), bytes);
  step(device, [&] {
    for (std::size_t i = 0; i < kRounds; ++i) {
      const std::size_t event = 3 * i;
      if (i > 0) device.wait(Queue::upload, event - 2), device.wait(Queue::compute, event - 1);
      device.copy(Queue::upload, {x, there[i].data(), bytes});
      device.record(Queue::upload, event);
      device.wait(Queue::compute, event);
      device.launch(Queue::compute, *kernel, {inputs, outputs});
      device.record(Queue::compute, event + 1);
      device.wait(Queue::download, event + 1);
      device.copy(Queue::download, {back[i].data(), y, bytes});
      device.record(Queue::download, event + 2);
    }
    device.wait_here(2);
    for (std::size_t j = 0; j < kElements; ++j) ASSERT_EQ(back[0][j], 2 * there[0][j]);
  });
  device.unpin(there[0].data());
  for (std::size_t i = 0; i < kRounds; ++i)
    for (std::size_t j = 0; j < kElements; ++j) ASSERT_EQ(back[i][j], 2 * there[i][j]) << "round " << i;
}

// The launch on the emulated device fails before the kernel accesses memory, so the operands of 8 GiB need not exist.
TEST(CudaGrid, OfMoreBlocksThanADeviceCountsIsRefused) {
  Device &device = *contenders()[1].ways[0].machine->device;
  const Type lines{DType::f32, {std::int64_t{1} << 31, 1}};
  const graph::Node node{.op = "Softmax", .name = "thin"};
  const auto kernel = device.compile({node, {lines}, {lines}});
  std::vector<void *> operands = {nullptr};
  try {
    step(device, [&] { device.launch(Queue::compute, *kernel, {operands, operands}); });
    FAIL() << "it was launched";
  } catch (const Error &error) {
    EXPECT_EQ(error.code, Code::unsupported);
    EXPECT_EQ(error.text, "a kernel of 2147483648 blocks; a GPU takes 2147483647");
  }
}

// A kernel that computes y = x + x on any memory.
struct Doubling {
  explicit Doubling(Device &device) : kernel(device.compile({node, {type, type}, {type}})) {}
  std::vector<float> run(Device &device, void *x, void *y) const {
    const std::vector<void *> inputs = {x, x}, outputs = {y};
    step(device, [&] { device.launch(Queue::compute, *kernel, {inputs, outputs}); });
    std::vector<float> values(kElements);
    device.read(values.data(), y, kElements * sizeof(float));
    return values;
  }

  static constexpr std::int64_t kElements = 100;
  const graph::Node node{.op = "Add", .name = "twice"};
  const Type type{DType::f32, {kElements}};
  const std::unique_ptr<backend::Kernel> kernel;
};

TEST_P(Queues, KernelsWorkInMemoryBesideTheArenaToo) {
  Device &device = *GetParam()->ways[0].machine->device;
  const Doubling doubling(device);
  const std::vector<float> ones(Doubling::kElements, 1), twos(Doubling::kElements, 2);
  const std::uint64_t bytes = Doubling::kElements * sizeof(float);
  void *x = device.allocate(bytes), *y = device.allocate(bytes);
  device.write(x, ones.data(), bytes);
  EXPECT_EQ(doubling.run(device, x, y), twos);
  device.release(x);
  device.release(y);
}

TEST_P(Queues, KernelsThatAreGivenMemoryOfTheHostAreRefused) {
  const Machine &machine = *GetParam()->ways[0].machine;
  Device &device = *machine.device;
  if (device.info().shares_memory) return;
  const Doubling doubling(device);
  std::vector<float> ones(Doubling::kElements, 1), twos(Doubling::kElements, 2);
  Arena arena(machine);
  float *x = arena.put(ones), *y = arena.put(ones);
  for (const auto &[in, out] : {std::pair<void *, void *>(ones.data(), y), std::pair<void *, void *>(x, ones.data())})
    try {
      doubling.run(device, in, out);
      ADD_FAILURE() << "the device was given an address of the host's";
    } catch (const Error &error) {
      EXPECT_EQ(error.code, Code::internal);
      EXPECT_NE(error.text.find("lies in no memory of the device"), std::string::npos) << error.text;
    }
  EXPECT_EQ(doubling.run(device, x, y), twos) << "and the device goes on";
}

// A full device must refuse allocations. It must also refuse a kernel's first launch, for which the kernel is loaded
// onto the device. Only the emulated device can limit its memory.
TEST(CudaMemory, ThatIsFullRefusesWhatItIsAskedForAndFirstLaunches) {
  Device &device = *contenders()[1].ways[0].machine->device;
  const Doubling doubling(device);
  const auto code = [](auto act) {
    try {
      act();
      return Code::ok;
    } catch (const Error &error) {
      return error.code;
    }
  };
  const std::uint64_t bytes = Doubling::kElements * sizeof(float);
  void *x = device.allocate(bytes), *y = device.allocate(bytes);
  emulation::unload_kernels();
  const std::uint64_t before = device.free_bytes();
  emulation::limit_memory(0);
  EXPECT_EQ(device.free_bytes(), 0u);
  EXPECT_EQ(code([&] { doubling.run(device, x, y); }), Code::nomem);
  EXPECT_EQ(code([&] { device.release(device.allocate(bytes)); }), Code::nomem);
  emulation::limit_memory(emulation::kDeviceMemory);
  EXPECT_EQ(code([&] { doubling.run(device, x, y); }), Code::ok);
  EXPECT_LT(device.free_bytes(), before) << "the kernel lies on the device";
  device.release(x);
  device.release(y);
}

TEST(CudaMemory, OfTheHostIsPinnedInPiecesWhereTheWholeIsRefusedAndCopiesDoNotMind) {
  Device &device = *contenders()[1].ways[0].machine->device;
  constexpr std::uint64_t kPiece = 16 << 10, kBytes = 5 * kPiece + 100;
  MemoryBlock host(kBytes, "test");
  for (std::uint64_t i = 0; i < kBytes; ++i) host.data()[i] = static_cast<std::byte>(i % 251);
  const std::vector<std::byte> values(host.data(), host.data() + kBytes);
  void *there = device.allocate(kBytes);
  for (const auto &[each, all, expected] :
       {std::tuple{emulation::kUnlimited, emulation::kUnlimited, kBytes},
        std::tuple{kPiece, emulation::kUnlimited, kBytes}, std::tuple{kPiece, 3 * kPiece, 3 * kPiece},
        std::tuple{kPiece - 1, emulation::kUnlimited, std::uint64_t{0}}}) {
    emulation::limit_pinning(each, all);
    EXPECT_EQ(device.pin(host.data(), kBytes), expected);
    EXPECT_TRUE(std::ranges::equal(values, std::span(host.data(), kBytes))) << "pages were made, and changed";
    step(device, [&] { device.copy(Queue::upload, {there, host.data(), kBytes}); });
    std::ranges::fill(std::span(host.data(), kBytes), std::byte{0});
    step(device, [&] { device.copy(Queue::download, {host.data() + 1, there, kBytes - 1}); });
    EXPECT_TRUE(std::equal(host.data() + 1, host.data() + kBytes, values.begin()));
    device.read(host.data(), there, kBytes);
    EXPECT_TRUE(std::ranges::equal(values, std::span(host.data(), kBytes)));
    if (expected > 0) device.unpin(host.data());
  }
  emulation::limit_pinning(emulation::kUnlimited, emulation::kUnlimited);
  device.release(there);
}

TEST(CudaMemory, IsGivenBackOnAThreadThatHasUsedNoDevice) {
  std::unique_ptr<Device> device = backend::cuda::open("cuda:0", 1, false);
  MemoryBlock host(4096, "test");
  EXPECT_EQ(device->pin(host.data(), host.size()), host.size());
  device->allocate(4096);
  std::unique_ptr<backend::Recording> nothing = device->record_step([](void *) {}, nullptr, false);
  std::thread([&] {
    nothing.reset();
    device->unpin(host.data());
    device.reset();
  }).join();
}

// A device that a thread uses and whose calls must leave the thread's current CUDA context as it was.
class Guest {
 public:
  explicit Guest(backend::cuda::Context current) : current_(current) {}

  // Calls act(), which must end with this code.
  template <typename Act>
  void call(Act act, Code code = Code::ok) {
    ++calls_;
    EXPECT_EQ(error_of(act).code, code) << "call " << calls_;
    EXPECT_EQ(backend::cuda::current_context(), current_) << "call " << calls_;
  }

  void visit() {
    call([] { backend::cuda::open("cuda:9", 1, false); }, Code::device);
    call([this] { device_ = backend::cuda::open("cuda:0", 1, false); });
    std::unique_ptr<Doubling> doubling;
    call([&] { doubling = std::make_unique<Doubling>(*device_); });
    const std::uint64_t bytes = Doubling::kElements * sizeof(float);
    MemoryBlock host(4096, "test");
    std::vector<void *> inputs(2), outputs(1);
    call([&] { inputs[0] = inputs[1] = device_->allocate_arena(bytes); });
    call([&] { outputs[0] = device_->allocate(bytes); });
    call([&] { device_->free_bytes(); });
    call([&] { device_->pin(host.data(), host.size()); });
    call([&] { device_->reserve_events(1); });
    call([&] { device_->write(inputs[0], host.data(), bytes); });
    const auto issue = [&] {
      device_->launch(Queue::compute, *doubling->kernel, {inputs, outputs});
      device_->record(Queue::compute, 0);
    };
    call([&] { backend::run_step(*device_, issue); });
    call([&] { backend::run_step(*device_, [] { fail(Code::io, "adder", "it cannot count"); }); }, Code::io);
    call([&] { device_->wait_here(0); });
    call([&] { device_->event_ns(0); });
    std::unique_ptr<backend::Recording> recording;
    call([&] { recording = backend::record_step(*device_, issue, true); });
    call([&] { device_->replay_step(*recording, {}); });
    call([&] { device_->read(host.data(), outputs[0], bytes); });
    call([&] { recording.reset(); });
    call([&] { device_->unpin(host.data()); });
    call([&] { device_->release(outputs[0]); });
    doubling.reset();
    call([&] { device_.reset(); });
  }

 private:
  const backend::cuda::Context current_;
  std::unique_ptr<Device> device_;
  int calls_ = 0;
};

// A caller of the library may use CUDA too: not yet, or on another device.
TEST(CudaContext, OfTheCallersThreadIsAsItWasAfterEachCall) {
  const backend::cuda::CallersContext of_the_test;
  backend::cuda::make_current(nullptr);
  Guest(nullptr).visit();
  backend::cuda::use_device(7);
  const backend::cuda::Context other = backend::cuda::current_context();
  ASSERT_NE(other, nullptr);
  Guest(other).visit();
}

// An index out of range is reported at the end of the step, and not by a wait within the step. A thread that waits
// within the step may still do work of the previous step, and the index must not stop that work.
TEST_P(Queues, AnIndexOutOfRangeEndsNoWaitWithinTheStep) {
  const Machine &machine = *GetParam()->ways[0].machine;
  Device &device = *machine.device;
  if (!device.info().asynchronous) return;
  device.reserve_events(1);
  const graph::Node node{.op = "Gather", .name = "tokens"};
  const Type table{DType::f32, {4, 8}}, indices{DType::i64, {2}}, rows{DType::f32, {2, 8}};
  const auto kernel = device.compile({node, {table, indices}, {rows}});
  Arena arena(machine);
  std::vector<void *> inputs = {arena.put(std::vector<float>(32, 1)), arena.put(std::vector<std::int64_t>{3, 9})};
  float *to = arena.put(std::vector<float>(16));
  std::vector<void *> outputs = {to};
  try {
    step(device, [&] {
      device.launch(Queue::compute, *kernel, {inputs, outputs});
      device.record(Queue::compute, 0);
      EXPECT_NO_THROW(device.wait_here(0));
    });
    ADD_FAILURE() << "nothing came out";
  } catch (const Error &error) {
    EXPECT_EQ(error.code, Code::arg);
    EXPECT_EQ(error.subject, "tokens");
    EXPECT_EQ(error.text, "index 9 is outside 0..3");
  }
  const std::vector<float> found = arena.take(to, 16);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(found[i], 1);
  for (std::size_t i = 8; i < 16; ++i) EXPECT_TRUE(std::isnan(found[i]));
}

}  // namespace
}  // namespace protrain::test::device_test
