// Session: trains a model as its draft decided, alone or as one rank of several. The constructor compiles kernels and
// fills memory. A step runs one of the draft's Programs.
//   This class checks calls and makes sure that micro-batches and steps come in order. It also records when an error
// makes the session unusable. Such a session can only be destroyed. The memory is in Machine, and the counters are in
// StepAccount.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/error.h"
#include "base/shape.h"
#include "draft/log.h"
#include "draft/options.h"
#include "onnx_import/model.h"
#include "session/inputs.h"
#include "session/machine.h"
#include "session/nonfinite_trace.h"
#include "session/outputs.h"
#include "session/ranks.h"
#include "session/step_account.h"
#include "session/step_alarms.h"

namespace protrain::session {

struct ExportSource;

class Session {
 public:
  // `progress` receives lines that report the progress of the measurements of the machine.
  static std::unique_ptr<Session> create(const draft::Options &options, const onnx_import::ModelSource &model,
                                         draft::Log log, const draft::Log &progress = nullptr);
  Session(const draft::Settings &settings, const onnx_import::ModelSource &source,
          std::unique_ptr<backend::Device> device, Channels channels, draft::Log log, const draft::Log &progress);
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  void set_log(draft::Log log) { reporting_.log = std::move(log); }  // nullptr: no lines are made

  // Throws Code::state if an earlier error made the session unusable.
  void require_usable() const;
  void require_training(const char *what) const;
  // Records whether the exception that is being handled makes the session unusable. Call it in a catch block.
  void judge_exception() noexcept;

  // Copies the values of one input into the session. They stay until the input is set again. Throws Code::arg for an
  // unknown name, Code::shape for a wrong shape, and Code::type for a wrong type.
  void set_input(const std::string &name, DType dtype, const Shape &shape, const void *data);
  StepResult step();  // Code::state if an input was never set; nonfinite; cancelled
  float evaluate();
  // Computes the outputs that keep_outputs names. They can be read until the next step, evaluation or prediction.
  void predict();  // Code::state without outputs, or if an input that they depend on was never set; cancelled
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }  // any thread, also signal handlers
  double learning_rate() const { return account_.learning_rate(); }              // of the next step
  void set_learning_rate(double rate);
  std::uint64_t step_count() const { return account_.counters().steps; }
  std::uint64_t rank() const { return static_cast<std::uint64_t>(ranks_.rank()); }
  std::uint64_t rank_count() const { return static_cast<std::uint64_t>(ranks_.count()); }
  double grad_norm() const { return account_.grad_norm(); }  // of the last complete step; Code::state before the first

  std::size_t input_count() const { return inputs_.count(); }  // inputs that set_input takes, in the file's order
  const std::string &input_name(std::size_t i) const { return inputs_.name(i); }
  DType input_dtype(std::size_t i) const { return inputs_.dtype(i); }  // in the file
  const Shape &input_shape(std::size_t i) const { return inputs_.value(i).type.shape; }

  std::size_t output_count() const { return outputs_.count(); }  // kept outputs, in the file's order
  const std::string &output_name(std::size_t i) const { return outputs_.name(i); }
  DType output_dtype(std::size_t i) const { return outputs_.dtype(i); }
  const Shape &output_shape(std::size_t i) const { return outputs_.shape(i); }  // in the last prediction
  // Copies an output of the last prediction to `out`. Code::arg for an output that is not kept. Code::state if there is
  // no prediction to read. Code::type for another type, Code::shape for another size.
  void read_output(const std::string &name, DType dtype, void *out, std::uint64_t bytes);

  // The parameters of floats. Quantised weights are not listed.
  std::size_t parameter_count() const { return machine_.parameters().shown().size(); }  // tensors
  const std::string &parameter_name(std::size_t i) const { return machine_.parameters().name(shown_parameter(i)); }
  const Shape &parameter_shape(std::size_t i) const { return machine_.parameters().shape(shown_parameter(i)); }
  // Copy a parameter's values as float32, in the file's layout. Code::arg for an unknown name. Code::shape if `count`
  // is not the element count.
  void read_parameter(const std::string &name, float *out, std::size_t count);
  void write_parameter(const std::string &name, const float *values, std::size_t count);
  // Copy all parameters one after the other, in the order of parameter_name(). Code::shape if `count` is not
  // flat_parameters_elements().
  std::size_t flat_parameters_elements() const { return machine_.parameters().elements(); }
  void read_flat_parameters(float *out, std::size_t count);
  void write_flat_parameters(const float *values, std::size_t count);
  void read_grad(const std::string &name, float *out, std::size_t count);  // only with keep_gradients

  void export_model(const std::string &path);
  void export_adapters(const std::string &directory);  // Code::state if there are none
  // Loads the adapters' values from a file whose adapters have the same parameters and shapes. Throws Code::state if
  // the session has no adapters, Code::mismatch, Code::shape, and what AdapterFile throws.
  void load_adapters(const std::string &directory);
  // Switches the adapters on or off. While they are off they change nothing, and only evaluations and predictions are
  // possible.
  void use_adapters(bool use);  // Code::state if there are none
  // Saves everything that training needs to resume, and returns the checkpoint's path. Throws Code::state within a
  // step, and also Code::busy, io, nospc and path.
  std::string save(const std::string &directory);

  std::string plan_json() const;
  std::string program_text() const;
  std::string graph_text() const;
  // Compares the gradients of a step on the present inputs with finite differences of the loss in float64. See
  // protrain_session_check_gradients.
  std::string check_gradients(std::size_t samples);
  std::string report_json();  // of the last step: seconds, device_peak_bytes, host_peak_bytes, ...

 private:
  std::size_t shown_parameter(std::size_t i) const { return machine_.parameters().shown().at(i); }
  // A Program with its executor, its graph, and the simulation of its run.
  struct Run {
    run::Executor *executor = nullptr;
    const program::Program *program = nullptr;
    const graph::Graph *graph = nullptr;
    const program::Simulation *simulation = nullptr;
  };

  const draft::Draft &draft() const { return machine_.draft(); }
  // Does a part of a call. If it throws, records whether the session has become unusable.
  template <typename Part>
  auto guarded(Part part) -> decltype(part()) {
    require_usable();
    try {
      return part();
    } catch (...) {
      judge_and_rethrow();
    }
  }
  // Does a part of a call that cancel() can stop. If the part throws, withdraws a cancel that has not been served,
  // because the caller gets an error anyway. A call that cancel() cannot stop leaves the cancel set even if the call
  // fails, so the cancel stops the next call that can be stopped.
  template <typename Part>
  auto stoppable(Part part) -> decltype(part()) try {
    return guarded(part);
  } catch (...) {
    cancelled_.store(false, std::memory_order_relaxed);
    throw;
  }
  [[noreturn]] void judge_and_rethrow();

  Run run_of(std::size_t variant, bool last) const;
  StepResult take_batch();
  float take_evaluation();
  void take_prediction();
  bool times_next_run(const run::Executor &executor);
  void execute(run::Executor &executor, backend::StepScalars scalars);
  void run_forward(run::Executor &executor, bool timed);
  Run evaluation_of(std::size_t variant) const;
  backend::StepScalars forward_scalars() const;
  void meet(Call call, const std::function<std::size_t()> &prepare);
  void read_numbers(const program::Program &program, std::size_t variant);
  bool reads_norms() const;
  void judge_step(const StepResult &result, bool has_norms);
  void log_alarms(std::size_t count);
  std::string trace_step(std::size_t variant, const backend::StepScalars &scalars);
  void trace_evaluation(std::size_t variant, const Run &evaluation, Error &error);
  std::optional<NonfiniteTrace::Origin> watch(run::Executor &executor, const NonfiniteTrace::Watched &watched,
                                              const backend::StepScalars &scalars, program::StatusWord status);
  [[noreturn]] void refuse_nonfinite(program::StatusWord status, bool last, const std::string &origin);
  void settle();
  void finish_cancelled();

  // Logs the line that `make` returns. Drops the line if it cannot be made, for example for lack of memory, because the
  // step or the save that the line reports has succeeded all the same.
  template <typename Make>
  void log_line(const Make &make) const try {
    if (reporting_.log) reporting_.log(make());
  } catch (const std::exception &) {
  }
  void log_step(const StepResult &result, std::uint64_t scale) const;
  void warn_of_recording(const run::Report &report);

  using Export = void(const ExportSource &, const std::string &path);
  void write_export(const std::string &path, Export *write);

  std::size_t find_parameter(const std::string &name, std::size_t count) const;
  void meet_flat(Call call, std::size_t count);
  void require_adapters() const;
  void require_adapters_in_use() const;

  Machine machine_;
  Ranks ranks_;
  Inputs inputs_;
  Outputs outputs_;
  StepAccount account_;
  std::optional<backend::GroupNumbers> held_;  // numbers of the step whose Updates are deferred
  Run last_;                                   // the run of the last step()
  RoundNumbers numbers_;                       // of the last round; kept so that a step allocates nothing
  StepAlarms alarms_;
  bool lost_ = false;
  struct {
    draft::Log log;
    GroupNorms norms;
    bool traced = false;        // a skipped step has been traced to its first NaN or infinity
    bool warned = false;        // the log has said that steps are not recorded
    bool times_wanted = false;  // the next step is timed, because a report was asked for
  } reporting_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace protrain::session
