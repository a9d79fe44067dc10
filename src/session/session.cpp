// Create: load, differentiate, plan, lower, verify, allocate, fill. Step: run, read three numbers.
#include "session/session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "grad/training.h"
#include "plan/plan.h"
#include "program/program.h"
#include "run/executor.h"
#include "session/loaded_model.h"
#include "session/report.h"

namespace protrain::session {

namespace {

using graph::ValueId;

backend::Optimizer optimizer_of(const Options &options) {
  using Kind = backend::Optimizer::Kind;
  return {.kind = options.text("optimizer") == "sgd" ? Kind::sgd : Kind::adamw,
          .beta1 = options.real("beta1"),
          .beta2 = options.real("beta2"),
          .epsilon = options.real("epsilon"),
          .weight_decay = options.real("weight_decay"),
          .momentum = options.real("momentum")};
}

// Everything that is fixed once a session exists, in the order in which it is made.
struct Blueprint {
  std::unique_ptr<onnx_import::Model> file;
  graph::Graph forward;
  ValueId loss;
  grad::Training training;
  backend::Optimizer optimizer;
  plan::Plan plan;
  std::vector<bool> kept;  // per parameter: its gradient can be read
  program::State state;
  program::Program step, evaluation;
};

std::vector<bool> kept_gradients(const Options &options, const grad::Training &training) {
  std::vector<bool> kept(training.gradients.size(), false);
  for (const std::string &pattern : options.list("keep_gradients")) {
    bool matched = false;
    for (std::size_t p = 0; p < kept.size(); ++p)
      if (training.gradients[p] != ValueId::none &&
          glob_match(pattern, training.graph.value(training.graph.parameters[p]).name))
        kept[p] = matched = true;
    require(matched, Code::arg, "keep_gradients", "no trained parameter matches '{}'", pattern);
  }
  return kept;
}

Blueprint draw_up(const Options &options, const std::string &path, run::Kernels &kernels) {
  LoadedModel loaded = load_model(options, path);
  Blueprint b{.file = std::move(loaded.file),
              .forward = std::move(loaded.prepared.graph),
              .loss = loaded.loss,
              .training = {},
              .optimizer = optimizer_of(options),
              .plan = {},
              .kept = {},
              .state = {},
              .step = {},
              .evaluation = {}};
  b.training = grad::build(b.forward, b.loss);
  b.forward.outputs = {b.loss};
  b.forward.drop_dead_nodes();
  grad::prune_unread_outputs(b.forward);
  b.plan = plan::resident(b.training.graph);
  b.kept = kept_gradients(options, b.training);
  const program::Source step{.graph = b.training.graph,
                             .loss = b.training.loss,
                             .norm = b.training.norm,
                             .gradients = b.training.gradients,
                             .squared_norms = b.training.squared_norms};
  const program::Source evaluation{
      .graph = b.forward, .loss = b.loss, .norm = ValueId::none, .gradients = {}, .squared_norms = {}};
  b.state = program::lay_out_state(step, evaluation, b.optimizer.state_count(), b.kept);
  b.step = program::lower(step, b.plan, b.state, kernels.compile(b.training.graph));
  b.evaluation = program::lower(evaluation, b.plan, b.state, kernels.compile(b.forward));
  program::verify(b.step);
  program::verify(b.evaluation);
  return b;
}

// The device budget; where nothing is said, what the process may still take.
std::uint64_t device_budget(const Options &options, const backend::Device &device) {
  for (const char *key : {"device_memory", "memory"})
    if (options.is_set(key)) return options.bytes(key);
  return device.info().memory_bytes;
}

class LiveSession final : public Session {
 public:
  LiveSession(const Options &options, const std::string &path, Log log)
      : device_(backend::open(options.text("device"), static_cast<int>(options.integer("threads")))),
        kernels_(*device_),
        blueprint_(draw_up(options, path, kernels_)),
        log_(std::move(log)),
        learning_rate_(options.real("learning_rate")),
        seed_(static_cast<std::uint64_t>(options.integer("seed"))) {
    const std::uint64_t needed = std::max(blueprint_.step.arena_bytes, blueprint_.evaluation.arena_bytes);
    const std::uint64_t budget = device_budget(options, *device_);
    require(needed <= budget, Code::budget, "memory",
            "the model needs {} bytes and the budget is {}; the smallest budget that works is {}", needed, budget,
            needed);
    arena_ = static_cast<std::byte *>(device_->allocate_arena(needed));
    step_ = std::make_unique<run::Executor>(*device_, blueprint_.training.graph, blueprint_.step, arena_);
    evaluation_ = std::make_unique<run::Executor>(*device_, blueprint_.forward, blueprint_.evaluation, arena_);
    step_->bind(kernels_, blueprint_.optimizer);
    evaluation_->bind(kernels_, blueprint_.optimizer);
    fill();
    input_set_.assign(forward().inputs.size(), false);
    if (log_) log_(created_json(device_->info(), blueprint_.step, blueprint_.plan));
  }

  void set_input(const std::string &name, DType dtype, const Shape &shape, const void *data) override {
    const ValueId id = find_input(name);
    const graph::Type &type = forward().value(id).type;
    require(dtype == type.dtype, Code::type, name, "input {} is {}, not {}", name, name_of(type.dtype), name_of(dtype));
    require(shape == type.shape, Code::shape, name, "input {} has shape {}, not {}", name, to_text(type.shape),
            to_text(shape));
    device_->write(address(id), data, byte_count(dtype, shape));
    const auto at = std::ranges::find(forward().inputs, id);
    input_set_[static_cast<std::size_t>(at - forward().inputs.begin())] = true;
  }

  StepResult step() override {
    const std::uint64_t t = steps_ + 1;
    execute(*step_, blueprint_.step,
            {.learning_rate = learning_rate_,
             .beta1_power = std::pow(blueprint_.optimizer.beta1, static_cast<double>(t)),
             .beta2_power = std::pow(blueprint_.optimizer.beta2, static_cast<double>(t)),
             .step = t,
             .seed = seed_});
    StepResult result;
    read_buffer(blueprint_.step, blueprint_.step.loss, &result.loss, sizeof result.loss);
    read_buffer(blueprint_.step, blueprint_.step.norm, &result.grad_norm, sizeof result.grad_norm);
    if (log_) log_(step_json(steps_, result, step_->report()));
    finish_cancelled();
    return result;
  }

  float evaluate() override {
    execute(*evaluation_, blueprint_.evaluation, {.step = steps_, .seed = seed_});
    float loss = 0;
    read_buffer(blueprint_.evaluation, blueprint_.evaluation.loss, &loss, sizeof loss);
    finish_cancelled();
    return loss;
  }

  void cancel() noexcept override { cancelled_.store(true, std::memory_order_relaxed); }
  void set_learning_rate(double rate) override {
    require(std::isfinite(rate) && rate >= 0, Code::arg, "learning_rate", "{} is not a finite number >= 0", rate);
    learning_rate_ = rate;
  }
  std::uint64_t step_count() const override { return steps_; }

  std::size_t input_count() const override { return forward().inputs.size(); }
  const std::string &input_name(std::size_t i) const override { return forward().value(forward().inputs.at(i)).name; }
  DType input_dtype(std::size_t i) const override { return forward().value(forward().inputs.at(i)).type.dtype; }
  const Shape &input_shape(std::size_t i) const override { return forward().value(forward().inputs.at(i)).type.shape; }

  std::size_t parameter_count() const override { return forward().parameters.size(); }
  const std::string &parameter_name(std::size_t i) const override {
    return forward().value(forward().parameters.at(i)).name;
  }
  const Shape &parameter_shape(std::size_t i) const override {
    return forward().value(forward().parameters.at(i)).type.shape;
  }

  void read_parameter(const std::string &name, float *out, std::size_t count) override {
    const ValueId id = forward().parameters[find_parameter(name, count)];
    device_->read(out, address(id), count * sizeof(float));
  }

  void write_parameter(const std::string &name, const float *values, std::size_t count) override {
    const ValueId id = forward().parameters[find_parameter(name, count)];
    device_->write(address(id), values, count * sizeof(float));
  }

  void read_gradient(const std::string &name, float *out, std::size_t count) override {
    const std::size_t p = find_parameter(name, count);
    require(blueprint_.kept[p], Code::arg, name,
            "the gradient of {} is not kept; create the session with keep_gradients={}", name, name);
    require(steps_ > 0, Code::state, name, "there is no gradient before the first step");
    device_->read(out, address(blueprint_.training.gradients[p]), count * sizeof(float));
  }

  void export_model(const std::string &path) override {
    blueprint_.file->save(path, [this](const std::string &name, std::byte *out) {
      const ValueId id = parameter_named(name);
      if (id == ValueId::none) return false;
      const graph::Type &type = forward().value(id).type;
      device_->read(out, address(id), byte_count(type.dtype, type.shape));
      return true;
    });
  }

  std::string plan_json() override { return plan::to_json(blueprint_.plan); }
  std::string program_text() override { return program::print(blueprint_.step, blueprint_.training.graph); }
  std::string graph_text() override { return blueprint_.training.graph.print(); }
  std::string report_json() override {
    return session::report_json(step_->report(), blueprint_.step, blueprint_.training.graph);
  }

 private:
  const graph::Graph &forward() const { return blueprint_.forward; }

  std::byte *address(ValueId id) const {
    return arena_ + blueprint_.state.buffers[index(blueprint_.state.of_value.at(id))].offset;
  }

  void read_buffer(const program::Program &program, program::BufferId id, void *out, std::size_t bytes) {
    device_->read(out, arena_ + program.buffers[index(id)].offset, bytes);
  }

  // Constants and weights into the arena; optimizer state starts at zero.
  void fill() {
    const graph::Graph &graph = blueprint_.training.graph;
    std::vector<std::byte> staging;
    for (const auto &[id, buffer] : blueprint_.state.of_value) {
      const graph::Value &value = graph.value(id);
      const std::uint64_t bytes = byte_count(value.type.dtype, value.type.shape);
      const bool constant = value.origin == graph::Origin::constant;
      const bool parameter = value.origin == graph::Origin::parameter;
      if (device_->info().shares_memory) {
        if (constant) value.array.write_dense(address(id));
        if (parameter) blueprint_.file->read(value.name, address(id));
      } else if (constant || parameter) {
        staging.resize(bytes);
        constant ? value.array.write_dense(staging.data()) : blueprint_.file->read(value.name, staging.data());
        device_->write(address(id), staging.data(), bytes);
      }
    }
    for (const auto &arrays : blueprint_.state.of_optimizer)
      for (program::BufferId id : arrays) zero(blueprint_.state.buffers[index(id)]);
  }

  void zero(const program::Buffer &buffer) {
    static constexpr std::size_t kPiece = 64 << 10;
    static const std::vector<std::byte> zeros(kPiece);
    for (std::uint64_t done = 0; done < buffer.bytes; done += kPiece)
      device_->write(arena_ + buffer.offset + done, zeros.data(), std::min<std::uint64_t>(kPiece, buffer.bytes - done));
  }

  void execute(run::Executor &executor, const program::Program &program, const backend::StepScalars &scalars) {
    for (std::size_t i = 0; i < input_set_.size(); ++i)
      require(input_set_[i], Code::state, forward().value(forward().inputs[i]).name,
              "input {} was never set; call protrain_session_set_input first",
              forward().value(forward().inputs[i]).name);
    std::uint32_t status = 0;
    std::byte *status_at = arena_ + program.buffers[index(program.status)].offset;
    device_->write(status_at, &status, sizeof status);
    try {
      executor.run(scalars, cancelled_);
    } catch (const Error &error) {
      if (error.code == Code::cancelled) cancelled_.store(false, std::memory_order_relaxed);
      throw;
    }
    device_->read(&status, status_at, sizeof status);
    if (status == 1) fail(Code::nonfinite, "loss", "the loss is not finite; no parameter was changed");
    if (&executor == step_.get()) steps_ = scalars.step;
    if (status > 1) fail_half_applied(status - 2);
  }

  [[noreturn]] void fail_half_applied(std::size_t parameter) const {
    const std::string &name = forward().value(forward().parameters[parameter]).name;
    throw Error(Code::nonfinite, name,
                fmt::format("the gradient of {} is not finite; parameters updated before it took step {}, it and the "
                            "others did not",
                            name, steps_),
                Aftermath::half_applied);
  }

  // A cancel that came too late to stop the step: the step stands, the caller is told.
  void finish_cancelled() {
    if (cancelled_.exchange(false, std::memory_order_relaxed))
      throw Error(Code::cancelled, "", "cancelled; the call had gone too far to stop and ran to its end");
  }

  ValueId find_input(const std::string &name) const {
    std::vector<std::string> names;
    for (ValueId id : forward().inputs) {
      if (forward().value(id).name == name) return id;
      names.push_back(forward().value(id).name);
    }
    fail(Code::arg, name, "the model has no input {}; its inputs are {}", name, fmt::join(names, ", "));
  }

  ValueId parameter_named(const std::string &name) const {
    const ValueId id = forward().find(name);
    return id != ValueId::none && forward().value(id).origin == graph::Origin::parameter ? id : ValueId::none;
  }

  std::size_t find_parameter(const std::string &name, std::size_t count) const {
    const ValueId id = parameter_named(name);
    require(id != ValueId::none, Code::arg, name, "the model has no parameter {}", name);
    const auto elements = static_cast<std::size_t>(element_count(forward().value(id).type.shape));
    require(count == elements, Code::shape, name, "parameter {} has {} elements, not {}", name, elements, count);
    return static_cast<std::size_t>(std::ranges::find(forward().parameters, id) - forward().parameters.begin());
  }

  std::unique_ptr<backend::Device> device_;
  run::Kernels kernels_;
  Blueprint blueprint_;
  Log log_;
  double learning_rate_;
  std::uint64_t seed_;
  std::uint64_t steps_ = 0;
  std::byte *arena_ = nullptr;
  std::unique_ptr<run::Executor> step_, evaluation_;
  std::vector<bool> input_set_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace

std::unique_ptr<Session> Session::create(const Options &options, const std::string &model_path, Log log) {
  return std::make_unique<LiveSession>(options, model_path, std::move(log));
}

}  // namespace protrain::session
