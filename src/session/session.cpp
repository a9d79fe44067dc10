// Step: pick the Program that fits the inputs, run it, read a few numbers, and decide what a number that is not finite
// means.
#include "session/session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <optional>

#include "backend/optimizer_step.h"
#include "base/error.h"
#include "session/checkpoint.h"
#include "session/loaded_model.h"
#include "session/machine.h"
#include "session/report.h"

namespace protrain::session {

namespace {

using graph::ValueId;

constexpr const char *kAnew = "; the step begins anew with its first batch";
constexpr std::uint32_t kLossMark = 1;  // status words above it are 2 + the parameter

// Of the runs of a Program, from 1 on, those in which a GPU is asked when each instruction was over: it costs a percent
// or two of the step. The first is cold and the second the first replay; later ones are enough for a report.
bool is_timed(std::uint64_t run) { return std::has_single_bit(run) || run % 64 == 0; }

class LiveSession final : public Session {
 public:
  LiveSession(const Options &options, const onnx_import::Source &source, Log log, const Log &progress)
      : machine_(options, source, progress),
        blueprint_(machine_.blueprint()),
        log_(std::move(log)),
        learning_rate_(options.real("learning_rate")),
        count_(resume(machine_, options)) {
    input_shapes_.resize(forward().inputs.size());
    if (log_) log_(created_json(machine_.device(), blueprint_, machine_.memory()));
  }

  void set_log(Log log) override { log_ = std::move(log); }

  void set_input(const std::string &name, DType dtype, const Shape &shape, const void *data) override {
    const std::size_t i = find_input(name);
    const graph::Type &type = forward().value(forward().inputs[i]).type;
    require(dtype == type.dtype, Code::type, name, "input {} is {}, not {}", name, name_of(type.dtype), name_of(dtype));
    require_served(i, shape);
    machine_.write_input(blueprint_.draft.state.of_value[0].at(forward().inputs[i]), data, byte_count(dtype, shape));
    input_shapes_[i] = shape;
  }

  StepResult step() override {
    return told([this] { return take_batch(); });
  }

  float evaluate() override {
    return told([this] { return take_evaluation(); });
  }

  void cancel() noexcept override { cancelled_.store(true, std::memory_order_relaxed); }
  void set_learning_rate(double rate) override {
    require(std::isfinite(rate) && rate >= 0, Code::arg, "learning_rate", "{} is not a finite number >= 0", rate);
    learning_rate_ = rate;
  }
  std::uint64_t step_count() const override { return count_.steps; }
  double grad_norm() const override {
    require(norm_.has_value(), Code::state, "", "there is no gradient norm before the first step");
    return *norm_;
  }

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
    told([&] {
      const std::size_t p = find_parameter(name, count);
      settle();
      machine_.parameters().read(p, 0, 0, std::as_writable_bytes(std::span(out, count)));
    });
  }

  void write_parameter(const std::string &name, const float *values, std::size_t count) override {
    told([&] {
      const std::size_t p = find_parameter(name, count);
      settle();
      machine_.parameters().write(p, 0, 0, std::as_bytes(std::span(values, count)));
    });
  }

  std::size_t parameters_elements() const override {
    std::size_t elements = 0;
    for (std::size_t p = 0; p < parameter_count(); ++p) elements += elements_of(p);
    return elements;
  }

  void read_parameters(float *out, std::size_t count) override {
    require_all_elements(count);
    told([&] {
      settle();
      for (std::size_t p = 0; p < parameter_count(); out += elements_of(p++))
        machine_.parameters().read(p, 0, 0, std::as_writable_bytes(std::span(out, elements_of(p))));
    });
  }

  void write_parameters(const float *values, std::size_t count) override {
    require_all_elements(count);
    told([&] {
      settle();
      for (std::size_t p = 0; p < parameter_count(); values += elements_of(p++))
        machine_.parameters().write(p, 0, 0, std::as_bytes(std::span(values, elements_of(p))));
    });
  }

  void read_gradient(const std::string &name, float *out, std::size_t count) override {
    require_usable();
    const std::size_t p = find_parameter(name, count);
    require(blueprint_.kept[p], Code::arg, name,
            "the gradient of {} is not kept; create the session with keep_gradients={}", name, name);
    require(norm_.has_value(), Code::state, name, "there is no gradient before the first step");
    require(micro_batch_ == 0, Code::state, name, "the step is not complete: {} of {} batches", micro_batch_,
            blueprint_.accumulation);
    require(gradients_hold_, Code::state, name,
            "the gradients of the last step went with the call that failed after it");
    machine_.parameters().read_gradient(p, std::span(out, count));
    if (last_weight_ == 1) return;
    for (float &value : std::span(out, count)) value *= static_cast<float>(1 / last_weight_);
  }

  void export_model(const std::string &path) override {
    told([&] {
      settle();
      const auto weights = [this](const std::string &name, std::byte *out) { return export_initializer(name, out); };
      blueprint_.file->save(path, weights, onnx_import::kInlineBytes, blueprint_.splits);
    });
  }

  std::string save(const std::string &directory) override {
    require_usable();
    require(micro_batch_ == 0, Code::state, "session",
            "the step is not complete: {} of {} batches; save before it or after its last batch", micro_batch_,
            blueprint_.accumulation);
    told([this] { settle(); });
    const std::string path = session::save(machine_, count_, directory);
    if (log_) log_(saved_json(count_.steps, path));
    return path;
  }

  std::string plan_json() override { return plan::to_json(blueprint_.chosen.plan); }
  std::string program_text() override {
    return program::print(blueprint_.draft.programs[0].step, blueprint_.first().training.graph);
  }
  std::string graph_text() override { return blueprint_.first().training.graph.print(); }
  std::string report_json() override {
    times_wanted_ = true;
    if (last_.executor != nullptr)
      return session::report_json(last_.executor->report(), seconds_, machine_.memory(), *last_.program, *last_.graph,
                                  last_.predicted);
    return session::report_json(machine_.executors(0).step->report(), 0, machine_.memory(),
                                blueprint_.draft.programs[0].step, blueprint_.first().training.graph,
                                &blueprint_.predicted[0].step);
  }

 private:
  // What the last call to step() ran.
  struct Ran {
    run::Executor *executor = nullptr;
    const program::Program *program = nullptr;
    const graph::Graph *graph = nullptr;
    const program::Simulation *predicted = nullptr;
  };

  const graph::Graph &forward() const { return blueprint_.first().forward; }

  void require_usable() const {
    require(!lost_, Code::state, "session", "the session was lost by an earlier error; destroy it");
  }

  // What a call throws ends it: a cancel that was meant for it must not meet the next.
  template <typename Call>
  auto told(Call call) -> decltype(call()) {
    require_usable();
    try {
      return call();
    } catch (const Error &error) {
      cancelled_.store(false, std::memory_order_relaxed);
      lost_ = error.aftermath == Aftermath::lost;
      throw;
    } catch (...) {
      cancelled_.store(false, std::memory_order_relaxed);
      throw;
    }
  }

  StepResult take_batch() {
    const bool last = micro_batch_ + 1 == blueprint_.accumulation;
    const std::size_t binding = fitting_binding();
    const Served &served = *blueprint_.served[binding];
    const Machine::Executors &executors = machine_.executors(binding);
    const Draft::Programs &programs = blueprint_.draft.programs[binding];
    const program::Program &program = last ? programs.step : programs.accumulate;
    const Predicted &predicted = blueprint_.predicted[binding];
    last_ = {last ? executors.step.get() : executors.accumulate.get(), &program, &served.training.graph,
             last ? &predicted.step : &predicted.accumulate};
    // A micro-batch before this one may have spoilt the sums already: then no Update is to run.
    machine_.set_status(spoilt_);
    gradients_hold_ = false;
    const std::uint64_t scale = blueprint_.scales_loss() ? count_.loss_scale.value() : 1;
    const backend::StepScalars now = scalars(scale);
    execute(*last_.executor, now);
    const StepResult result = finish_micro_batch(program, last, scale);
    if (defers() && machine_.status() == 0) held_ = now.update;
    if (last) log_step(result, scale);
    warn_of_recording(last_.executor->report());
    finish_cancelled();
    return result;
  }

  // Updates may run in the next step: whoever asks for the parameters before has them run now.
  bool defers() const { return machine_.settlement() != nullptr; }

  void settle() {
    if (!held_) return;
    static constexpr std::atomic<bool> kNever{false};
    machine_.set_held(true);
    machine_.settlement()->run({.earlier = *std::exchange(held_, std::nullopt)}, kNever, false);
  }

  float take_evaluation() {
    settle();
    const std::size_t binding = fitting_binding();
    const program::Program &program = blueprint_.draft.programs[binding].evaluation;
    machine_.set_status(0);
    machine_.executors(binding).evaluation->run({.step = count_.steps, .seed = count_.seed}, cancelled_, false);
    require(machine_.status() == 0, Code::nonfinite, "loss", "the loss is not finite");
    float loss = 0;
    machine_.read_result(program, program.loss, &loss, sizeof loss);
    finish_cancelled();
    return loss;
  }

  // The step stands: a line that cannot be made is dropped.
  void log_step(const StepResult &result, std::uint64_t scale) {
    if (!log_) return;
    try {
      log_(step_json(count_.steps, result, seconds_, blueprint_.scales_loss() ? scale : 0));
    } catch (const std::exception &) {
    }
  }

  // Once a session: it goes on, slower.
  void warn_of_recording(const run::Report &report) {
    if (!log_ || report.not_recorded.empty() || std::exchange(warned_, true)) return;
    try {
      log_(
          warning_json(fmt::format("{} could not record the step, so that each is issued kernel by kernel, which is "
                                   "slower; now and then it is tried again: {}",
                                   machine_.device().name, report.not_recorded)));
    } catch (const std::exception &) {
    }
  }

  // The optimizer counts the steps that it took, random numbers the steps that there were.
  backend::StepScalars scalars(std::uint64_t loss_scale) const {
    const auto t = static_cast<double>(count_.steps + 1 - count_.skipped);
    return {.update = backend::numbers_of(blueprint_.optimizer, learning_rate_, t),
            .loss_scale = static_cast<double>(loss_scale),
            .step = count_.steps + 1,
            .seed = count_.seed,
            .micro_batch = micro_batch_,
            .first_sample = samples_};
  }

  // Of the present batch: axis 0 of the first input that has one.
  std::uint64_t samples_in_batch() const {
    for (const auto &shape : input_shapes_)
      if (!shape->empty()) return static_cast<std::uint64_t>(shape->front());
    return 1;
  }

  void execute(run::Executor &executor, backend::StepScalars scalars) {
    scalars.earlier = held_.value_or(backend::OptimizerNumbers{});
    machine_.set_held(held_.has_value());
    held_.reset();
    const bool timed = std::exchange(times_wanted_, false) || is_timed(executor.report().runs + 1);
    try {
      executor.run(scalars, cancelled_, timed);
    } catch (Error &error) {
      if (error.aftermath == Aftermath::unchanged) throw;  // the batch did not take place, those before it stand
      // Sums to which part of a batch was added are of no use.
      begin_step();
      try {
        if (blueprint_.accumulation > 1) error.text += kAnew;
      } catch (const std::bad_alloc &) {  // the C door says it then
      }
      throw;
    }
    seconds_ = (micro_batch_ == 0 ? 0 : seconds_) + executor.report().seconds;
  }

  void begin_step() {
    micro_batch_ = samples_ = 0;
    spoilt_ = 0;
    loss_sum_ = weight_sum_ = 0;
  }

  StepResult finish_micro_batch(const program::Program &program, bool last, std::uint64_t scale) {
    const std::uint32_t status = machine_.status();
    StepResult result;
    machine_.read_result(program, program.loss, &result.loss, sizeof result.loss);
    if (blueprint_.accumulation > 1) add_loss(program, result);
    const bool overflowed = blueprint_.scales_loss() && status > kLossMark && count_.loss_scale.shrink();
    if (status != 0 && !overflowed) refuse_nonfinite(status, last);
    if (!last) {
      ++micro_batch_;
      samples_ += samples_in_batch();
      return result;
    }
    machine_.read_result(program, program.norm, &result.grad_norm, sizeof result.grad_norm);
    if (blueprint_.accumulation > 1) result.loss = static_cast<float>(loss_sum_ / weight_sum_);
    last_weight_ = (blueprint_.accumulation > 1 ? weight_sum_ : 1) * static_cast<double>(scale);
    norm_ = result.grad_norm;
    gradients_hold_ = true;
    ++count_.steps;
    if (status != 0) ++count_.skipped;
    count_.loss_scale.count(status == 0);
    begin_step();
    return result;
  }

  // The step's loss is the mean over all counted targets, as one large batch would give it.
  void add_loss(const program::Program &program, const StepResult &result) {
    double weight = 1;
    machine_.read_result(program, program.weight, &weight, sizeof weight);
    if (weight > 0) loss_sum_ += weight * static_cast<double>(result.loss);
    weight_sum_ += weight;
  }

  // Returns where the step is skipped; else begins it anew and throws.
  void refuse_nonfinite(std::uint32_t status, bool last) {
    if (blueprint_.policy == NonfinitePolicy::skip) {
      spoilt_ = status;
      return;
    }
    const bool overlap = blueprint_.chosen.plan.order == plan::OptimizerOrder::overlap;
    begin_step();
    const char *anew = blueprint_.accumulation > 1 ? kAnew : "";
    if (status == kLossMark) fail(Code::nonfinite, "loss", "the loss is not finite; no parameter was changed{}", anew);
    const std::string &name = parameter_name(status - kLossMark - 1);
    if (!overlap || !last)
      fail(Code::nonfinite, name, "the gradient of {} is not finite; no parameter was changed{}", name, anew);
    ++count_.steps;
    throw Error(Code::nonfinite, name,
                fmt::format("the gradient of {} is not finite; parameters updated before it took step {}, it and the "
                            "others did not",
                            name, count_.steps),
                Aftermath::half_applied);
  }

  // A cancel that came too late to stop the step: the step stands, the caller is told.
  void finish_cancelled() {
    if (cancelled_.exchange(false, std::memory_order_relaxed))
      throw Error(Code::cancelled, "", "cancelled; the call had gone too far to stop and ran to its end");
  }

  const Shape &served_shape(std::size_t binding, std::size_t input) const {
    const graph::Graph &graph = blueprint_.served[binding]->forward;
    return graph.value(graph.inputs[input]).type.shape;
  }

  void require_served(std::size_t input, const Shape &shape) const {
    std::vector<std::string> served;
    for (std::size_t b = 0; b < blueprint_.served.size(); ++b) {
      if (served_shape(b, input) == shape) return;
      served.push_back(to_text(served_shape(b, input)));
    }
    fail(Code::shape, input_name(input), "input {} has shape {}, not {}", input_name(input), fmt::join(served, " or "),
         to_text(shape));
  }

  // The binding whose shapes the present inputs have.
  std::size_t fitting_binding() const {
    for (std::size_t i = 0; i < input_shapes_.size(); ++i)
      require(input_shapes_[i].has_value(), Code::state, input_name(i),
              "input {} was never set; call protrain_session_set_input first", input_name(i));
    for (std::size_t b = 0; b < blueprint_.served.size(); ++b) {
      bool fits = true;
      for (std::size_t i = 0; fits && i < input_shapes_.size(); ++i) fits = served_shape(b, i) == *input_shapes_[i];
      if (fits) return b;
    }
    std::vector<std::string> shapes;
    for (std::size_t i = 0; i < input_shapes_.size(); ++i)
      shapes.push_back(fmt::format("{} {}", input_name(i), to_text(*input_shapes_[i])));
    fail(Code::shape, "shapes", "no binding of the session has {} together", fmt::join(shapes, ", "));
  }

  std::size_t find_input(const std::string &name) const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < forward().inputs.size(); ++i) {
      if (input_name(i) == name) return i;
      names.push_back(input_name(i));
    }
    fail(Code::arg, name, "the model has no input {}; its inputs are {}", name, fmt::join(names, ", "));
  }

  // False for what is no parameter and no transpose of one.
  bool export_initializer(const std::string &name, std::byte *out) {
    const auto tied = blueprint_.tied.find(name);
    const ValueId id = parameter_named(tied != blueprint_.tied.end() ? tied->second.parameter : name);
    if (id == ValueId::none) return false;
    const Shape &shape = forward().value(id).type.shape;
    const std::span<std::byte> bytes(out, byte_count(DType::f32, shape));
    if (tied == blueprint_.tied.end() || !tied->second.turned) {
      machine_.parameters().read(position_of(id), 0, 0, bytes);
      return true;
    }
    std::vector<std::byte> straight(bytes.size());
    machine_.parameters().read(position_of(id), 0, 0, straight);
    const auto rows = static_cast<std::size_t>(shape[0]), columns = static_cast<std::size_t>(shape[1]);
    constexpr std::size_t size = sizeof(float);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j)
        std::memcpy(&bytes[(j * rows + i) * size], &straight[(i * columns + j) * size], size);
    return true;
  }

  ValueId parameter_named(const std::string &name) const {
    const ValueId id = forward().find(name);
    return id != ValueId::none && forward().value(id).origin == graph::Origin::parameter ? id : ValueId::none;
  }

  std::size_t position_of(ValueId parameter) const {
    return static_cast<std::size_t>(std::ranges::find(forward().parameters, parameter) - forward().parameters.begin());
  }

  std::size_t elements_of(std::size_t p) const { return static_cast<std::size_t>(element_count(parameter_shape(p))); }

  void require_all_elements(std::size_t count) const {
    require(count == parameters_elements(), Code::shape, "values", "the parameters have {} elements together, not {}",
            parameters_elements(), count);
  }

  std::size_t find_parameter(const std::string &name, std::size_t count) const {
    const ValueId id = parameter_named(name);
    require(id != ValueId::none, Code::arg, name, "the model has no parameter {}", name);
    const std::size_t p = position_of(id);
    require(count == elements_of(p), Code::shape, name, "parameter {} has {} elements, not {}", name, elements_of(p),
            count);
    return p;
  }

  Machine machine_;
  const Blueprint &blueprint_;
  Log log_;
  double learning_rate_;
  Counters count_;
  std::uint64_t micro_batch_ = 0;                   // that comes next within the step
  std::uint64_t samples_ = 0;                       // of the step's micro-batches so far
  std::uint32_t spoilt_ = 0;                        // status of a micro-batch of this step that was not finite
  std::optional<backend::OptimizerNumbers> held_;   // of the step that left Updates to the next
  double loss_sum_ = 0, weight_sum_ = 0;            // over the step's micro-batches
  double seconds_ = 0;                              // of the last step, or of its micro-batches so far
  std::optional<double> norm_;                      // of the last complete step
  bool gradients_hold_ = false;                     // those of the last complete step are still there
  double last_weight_ = 1;                          // what the gradients of the last complete step are too large by
  std::vector<std::optional<Shape>> input_shapes_;  // of what was set
  Ran last_;
  bool lost_ = false, warned_ = false;
  bool times_wanted_ = false;  // of the next step: a report was asked for
  std::atomic<bool> cancelled_{false};
};

}  // namespace

std::unique_ptr<Session> Session::create(const Options &options, const onnx_import::Source &model, Log log,
                                         const Log &progress) {
  require(!options.is_set("hardware"), Code::arg, "hardware",
          "a session runs on this machine; hardware is for planning alone");
  return std::make_unique<LiveSession>(options, model, std::move(log), progress);
}

}  // namespace protrain::session
