// Settings: the options of a session as values. Only settings_of() turns the texts of options into values.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/dtype.h"
#include "draft/binding.h"
#include "draft/options.h"
#include "draft/schedule.h"
#include "onnx_import/model.h"
#include "passes/parameters/rounded.h"
#include "passes/passes.h"

namespace protrain::draft {

// The treatment of a step whose loss or gradients are not finite.
enum class NonfinitePolicy : std::uint8_t {
  stop,      // an error; in the overlap order some parameters may have taken the step
  skip,      // the step counts, no parameter changes
  rollback,  // an error, and everything is as before the step
};

// The option `trial`, for tests.
struct TestModes {
  bool workers = false;  // one worker per queue
  bool delays = false;   // sleeps before instructions
  bool poison = false;   // released memory is filled with NaN
};

// The options about parameters that are trained differently from the others.
struct GroupSettings {
  std::vector<GroupBinding> groups;              // the first that matches a parameter applies
  bool norms_stay = false, biases_stay = false;  // norms or biases get no weight decay
  double layer_decay = 1;                        // factor of the rate from each layer to the one before
};

// The options about ranks.
struct RankSettings {
  std::string comm = "auto";
  int rank = 0, count = 1;  // once the channel is open, its figures replace these
  std::string rendezvous;
  bool reaches_devices = true;  // false: the channel moves bytes of the host's memory only
  std::chrono::milliseconds timeout{300'000};
  bool local_sums = false;  // a rank adds the gradients of its own micro-batches before they are exchanged
};

// The options of a session as values, in the order of the option table. An option that is not set has its default. If
// it has none, a text or a list is empty, and a std::optional has no value.
struct Settings {
  std::string device = "cpu";
  bool trains = true;  // false: the session computes losses and outputs alone
  int threads = 0;
  DType precision = DType::f32;     // of weights and activations in a step
  bool export_as_computed = false;  // exports have float32 where the file has other floats
  bool export_average = false;      // exports have the moving average of trained weights
  bool eval_average = false;        // the session takes the moving averages of the checkpoint as its weights
  bool export_adapters_as_inputs = false;
  bool tf32 = false;
  std::optional<std::int64_t> seed;
  onnx_import::DimBindings dims;
  std::vector<onnx_import::DimBindings> shapes;  // each replaces or adds to `dims`
  onnx_import::InputValues constants;            // inputs that are bound to values
  bool without_past = false;                     // inputs that hold earlier tokens are empty
  std::string packed;                            // the input of positions in packed documents; "": none are packed

  std::optional<std::uint64_t> memory, device_memory, host_memory, disk_memory;
  std::string offload_dir, plan, hardware, profile_dir;
  std::uint64_t base_at_hand = 0;  // bytes of frozen weights that are shared with another session and not counted

  std::vector<std::string> trainable, frozen, tie, keep_gradients, keep_outputs;
  std::vector<passes::AdapterRequest> adapters;
  std::string adapter, adapter_names;
  const passes::Rounding *base_precision = nullptr;  // nullptr: frozen weights rest as the file has them
  std::string parameters_from;
  passes::BatchNorm batch_norm = passes::BatchNorm::as_exported;

  std::vector<passes::Loss> losses;  // their sum is the loss; empty: the model has one

  backend::Optimizer optimizer;
  double learning_rate = 0;
  Schedule schedule;
  GroupSettings groups;
  double clip_norm = 0;  // 0: no limit
  NonfinitePolicy on_nonfinite = NonfinitePolicy::stop;
  std::optional<std::int64_t> tokens_per_step, accumulation;

  RankSettings ranks;

  bool traces = false;  // reports and plans have each instruction of a step
  std::string resume;
  TestModes test_modes;

  bool declared_state = false;  // the optimizer begins with the state that the model's file holds
};

// Returns the settings that the options describe. Throws Code::arg if options contradict each other, Code::shape if one
// dim is bound to two sizes.
Settings settings_of(const Options &options);

// Takes over the optimizer that a model's file declares. Options that are set win over what the file says. The option
// `optimizer` replaces the file's whole optimizer, with its learning rate and its state. If this option is not set and
// a session cannot follow the file's optimizer, throws the error that says why.
void take_declared(Settings &settings, const Options &options, const graph::FileDeclarations &declared);

// Returns the name that the option `precision` uses: "fp32", "bf16" or "fp16".
const char *precision_name(DType precision);

}  // namespace protrain::draft
