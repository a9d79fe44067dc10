// Session: create is everything that is decided once, step is a loop over what was decided.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "onnx_import/model.h"
#include "session/options.h"

namespace protrain::session {

using Log = std::function<void(const std::string &json_line)>;

struct StepResult {
  float loss = 0;
  double grad_norm = 0;  // global L2 norm over trained parameters, before any clipping
};

class Session {
 public:
  // `progress` is told how far measuring the machine is.
  static std::unique_ptr<Session> create(const Options &options, const onnx_import::Source &model, Log log,
                                         const Log &progress = nullptr);
  virtual ~Session() = default;
  virtual void set_log(Log log) = 0;  // nullptr: nobody listens, and no line is made

  // Copies one input's values; kept until set again. Code::arg (name), shape, type.
  virtual void set_input(const std::string &name, DType dtype, const Shape &shape, const void *data) = 0;
  virtual StepResult step() = 0;  // Code::state where an input was never set; nonfinite; cancelled
  virtual float evaluate() = 0;
  virtual void cancel() noexcept = 0;  // any thread, signal handlers too
  virtual void set_learning_rate(double rate) = 0;
  virtual std::uint64_t step_count() const = 0;
  virtual double grad_norm() const = 0;  // of the last complete step; Code::state before

  virtual std::size_t input_count() const = 0;  // what set_input takes, in the file's order
  virtual const std::string &input_name(std::size_t i) const = 0;
  virtual DType input_dtype(std::size_t i) const = 0;
  virtual const Shape &input_shape(std::size_t i) const = 0;

  virtual std::size_t parameter_count() const = 0;  // tensors
  virtual const std::string &parameter_name(std::size_t i) const = 0;
  virtual const Shape &parameter_shape(std::size_t i) const = 0;
  // Float32 values in the file's layout; Code::arg for an unknown name, shape where count is not the element count.
  virtual void read_parameter(const std::string &name, float *out, std::size_t count) = 0;
  virtual void write_parameter(const std::string &name, const float *values, std::size_t count) = 0;
  // All parameters one after the other, in their order; Code::shape where count is not parameters_elements().
  virtual std::size_t parameters_elements() const = 0;
  virtual void read_parameters(float *out, std::size_t count) = 0;
  virtual void write_parameters(const float *values, std::size_t count) = 0;
  virtual void read_gradient(const std::string &name, float *out, std::size_t count) = 0;  // keep_gradients only

  virtual void export_model(const std::string &path) = 0;
  // Saves everything that training goes on from, between two steps; returns the checkpoint's path. Code::state within
  // a step, busy, io, nospc, path.
  virtual std::string save(const std::string &directory) = 0;

  virtual std::string plan_json() = 0;
  virtual std::string program_text() = 0;
  virtual std::string graph_text() = 0;
  virtual std::string report_json() = 0;  // of the last step: seconds, device_peak_bytes, host_peak_bytes, ...
};

// What `protrain check` prints: operators, missing kernels and gradients with node names, parameters and constants with
// the reason, blocks, inputs and symbolic dims (those not bound by options get a small default, which is said).
std::string check_model(const Options &options, const std::string &model_path);

// What `protrain plan` prints: the plan that the search would choose, what a step would take and hold, and why; for the
// machine that the option `hardware` describes, or for this one, whose kernels are then measured. Nothing is allocated
// but what that needs, no weights are read.
std::string plan_model(const Options &options, const std::string &model_path, const Log &progress);

// Measures this machine on the model's kernels, whatever an earlier session has measured: a description of the machine
// that the option `hardware` takes elsewhere.
std::string profile_model(const Options &options, const std::string &model_path, const Log &progress);

}  // namespace protrain::session
