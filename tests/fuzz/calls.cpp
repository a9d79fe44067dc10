// Sequences of calls of the C interface on small models. The input's bytes choose functions, arguments and order.
// Pointers and lengths are valid or NULL; all other arguments may be wrong.
#include <protrain.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "base/json.h"
#include "fuzz/answer.h"
#include "fuzz/models.h"
#include "scratch.h"

using protrain::fuzz::expect;

namespace {

namespace fs = std::filesystem;

// The folder for saves, exports and offloading.
const protrain::test::Scratch &scratch() {
  static const protrain::test::Scratch folder;
  return folder;
}

// Turns the bytes of the fuzzer's input into choices. After the end of the input every choice is 0.
class Bytes {
 public:
  Bytes(const std::uint8_t *data, std::size_t size) : at_(data), end_(data + size) {}

  bool more() const { return at_ != end_; }
  std::uint8_t byte() { return more() ? *at_++ : std::uint8_t{0}; }
  std::size_t below(std::size_t count) { return byte() % count; }
  bool seldom() { return below(16) == 15; }
  // One of a few texts, or NULL.
  template <std::size_t N>
  const char *text(const std::array<const char *, N> &texts) {
    return seldom() ? nullptr : texts[below(N)];
  }

 private:
  const std::uint8_t *at_, *end_;
};

// Checks and destroys the result of a call. Returns true if the call succeeded.
bool succeeds(protrain_error *error) {
  const protrain_code code = protrain_error_code(error);
  expect(code != PROTRAIN_ERROR_INTERNAL, protrain_error_text(error));
  expect((code == PROTRAIN_OK) == (error == nullptr) && code <= PROTRAIN_ERROR_CANCELLED, "no code of the header's");
  expect((*protrain_error_text(error) == '\0') == (error == nullptr), "an error without a text, or a text without one");
  expect(protrain_error_subject(error) != nullptr, "no subject");
  protrain_error_destroy(error);
  return code == PROTRAIN_OK;
}

void read_all_of(const char *text) { expect(text != nullptr && std::strlen(text) > 0, "a text that is not there"); }

// A log callback that calls the session that logs. The session must say that it is busy.
void log_line(const char *line, void *user) {
  read_all_of(line);
  std::uint64_t count = 0;
  auto **session = static_cast<protrain_session **>(user);
  if (session == nullptr || *session == nullptr) return;
  protrain_error *error = protrain_session_step_count(*session, &count);
  expect(protrain_error_code(error) == PROTRAIN_ERROR_BUSY, "a session that is not busy while it logs");
  protrain_error_destroy(error);
}

constexpr auto kNames = std::to_array<const char *>(
    {"ids", "labels", "x", "table", "head", "a0", "b1", "y", "logits", "", "nothing at all", "a*", "\xff"});
constexpr auto kKeys = std::to_array<const char *>({"dim",
                                                    "loss",
                                                    "loss_labels",
                                                    "loss_shift",
                                                    "optimizer",
                                                    "momentum",
                                                    "learning_rate",
                                                    "precision",
                                                    "memory",
                                                    "device_memory",
                                                    "host_memory",
                                                    "disk_memory",
                                                    "offload_dir",
                                                    "shapes",
                                                    "trainable",
                                                    "frozen",
                                                    "tie",
                                                    "keep_gradients",
                                                    "accumulation",
                                                    "tokens_per_step",
                                                    "clip_norm",
                                                    "clip_value",
                                                    "on_nonfinite",
                                                    "resume",
                                                    "seed",
                                                    "trial",
                                                    "trace",
                                                    "threads",
                                                    "plan",
                                                    "hardware",
                                                    "device",
                                                    "loss_output",
                                                    "beta1",
                                                    "epsilon",
                                                    "weight_decay",
                                                    "learning_rat",
                                                    "",
                                                    "keep_outputs",
                                                    "lora",
                                                    "lora_rank",
                                                    "adapter"});
constexpr auto kValues = std::to_array<const char *>({"batch=1",
                                                      "batch=2",
                                                      "batch=3",
                                                      "batch=0",
                                                      "cross_entropy",
                                                      "mse",
                                                      "l1",
                                                      "labels",
                                                      "0",
                                                      "1",
                                                      "2",
                                                      "6",
                                                      "sgd",
                                                      "adamw",
                                                      "0.9",
                                                      "1e-2",
                                                      "fp32",
                                                      "bf16",
                                                      "fp16",
                                                      "256MiB",
                                                      "1MiB",
                                                      "20KiB",
                                                      "1",
                                                      "a*",
                                                      "*",
                                                      "a0|b0",
                                                      "skip",
                                                      "rollback",
                                                      "stop",
                                                      "workers",
                                                      "poison",
                                                      "step",
                                                      "rtx3090",
                                                      "cpu",
                                                      "cuda:7",
                                                      "-1",
                                                      "nan",
                                                      "1e400",
                                                      "",
                                                      "batch",
                                                      "x=9999999999999999999",
                                                      "logits",
                                                      "table",
                                                      "\xff",
                                                      "batch=2,batch=3"});

class Calls {
 public:
  explicit Calls(Bytes bytes) : bytes_(bytes) {
    fs::remove_all(saved());
    fs::remove_all(adapters());
    fs::remove(exported());
    fs::remove(merged());
  }
  Calls(const Calls &) = delete;
  Calls &operator=(const Calls &) = delete;
  ~Calls() {
    protrain_session_destroy(session_);
    protrain_options_destroy(options_);
  }

  void run() {
    constexpr int kMostCalls = 60;
    make_options();
    for (int i = 0; i < kMostCalls && bytes_.more(); ++i) (this->*kCalls[bytes_.below(std::size(kCalls))])();
  }

 private:
  static std::string saved() { return scratch() / "saved"; }
  static std::string exported() { return scratch() / "exported.onnx"; }
  static std::string adapters() { return scratch() / "adapters"; }
  static std::string merged() { return scratch() / "merged.onnx"; }

  // Returns `pointer` or, seldom, NULL.
  template <typename T>
  T *or_null(T *pointer) {
    return bytes_.seldom() ? nullptr : pointer;
  }
  protrain_session *session() { return or_null(session_); }
  const char *name() { return bytes_.text(kNames); }

  void make_options() {
    protrain_options_destroy(options_);
    options_ = nullptr;
    expect(succeeds(protrain_options_create(&options_)), "no options");
    expect(succeeds(protrain_options_set(options_, "threads", "1")), "one thread is too many");
  }
  void destroy_session() {
    protrain_session_destroy(session_);
    session_ = nullptr;
  }

  void create_nothing() { succeeds(protrain_options_create(nullptr)); }
  void set_option() {
    const char *key = bytes_.text(kKeys), *value = bytes_.text(kValues);
    const std::string given = key == nullptr ? "" : key;
    const std::string folder = given == "resume"        ? saved()
                               : given == "offload_dir" ? scratch().path()
                               : given == "adapter"     ? adapters()
                                                        : "";
    succeeds(
        protrain_options_set(or_null(options_), key, !folder.empty() && value != nullptr ? folder.c_str() : value));
  }
  // The options that most sessions need.
  void set_usual() {
    tokens_ = bytes_.below(2) == 0;
    succeeds(protrain_options_set(options_, "dim", bytes_.below(2) == 0 ? "batch=1" : "batch=2"));
    succeeds(protrain_options_set(options_, "loss", tokens_ ? "cross_entropy" : "mse"));
  }
  void get_option() {
    const char *value = nullptr;
    if (succeeds(protrain_options_get(or_null(options_), bytes_.text(kKeys), or_null(&value))))
      expect(value != nullptr, "an option without a value");
  }
  void help() {
    const char *text = nullptr;
    if (succeeds(protrain_options_help(or_null(options_), or_null(&text)))) read_all_of(text);
  }
  // Returns the bytes of the chosen model. model_file() returns the path of a file with these bytes.
  const std::string &model() const {
    static const std::string layers = protrain::fuzz::layered_model(2), tokens = protrain::fuzz::token_model();
    return tokens_ ? tokens : layers;
  }
  const std::string &model_file() const {
    static std::string files[2];
    std::string &file = files[tokens_ ? 1 : 0];
    if (file.empty()) file = scratch().put(tokens_ ? "tokens.onnx" : "layers.onnx", model());
    return file;
  }
  void check() {
    const char *text = nullptr;
    const char *path = bytes_.seldom() ? "/nothing" : model_file().c_str();
    if (succeeds(protrain_model_check(or_null(options_), or_null(path), or_null(&text)))) read_all_of(text);
  }
  // Makes the next session follow a plan in which up to three digits are changed. The plan is that of the present
  // session, or a plan that protrain_model_plan() makes for the options.
  void follow_plan() {
    const char *text = nullptr;
    if (bytes_.below(2) == 0) {
      if (!succeeds(protrain_session_plan(session(), or_null(&text)))) return;
    } else if (!succeeds(protrain_model_plan(or_null(options_), or_null(model_file().c_str()), or_null(&text)))) {
      return;
    }
    protrain::Json json = protrain::parse_json(text, "");
    std::string plan = (json.find("plan") != nullptr ? *json.find("plan") : json).dump();
    for (std::size_t changes = bytes_.below(4); changes > 0; --changes) {
      const std::size_t digit = plan.find_first_of("0123456789", bytes_.byte() * plan.size() / 256);
      if (digit != plan.npos) plan[digit] = static_cast<char>('0' + bytes_.below(10));
    }
    succeeds(protrain_options_set(options_, "plan", scratch().put("plan.json", plan).c_str()));
  }
  void create() {
    const std::string &model = this->model();
    destroy_session();
    if (created_++ == 4) return;  // creating a session is the most expensive call
    const std::size_t length = bytes_.seldom() ? bytes_.byte() % model.size() : model.size();
    const bool made = succeeds(protrain_session_create_from_bytes(or_null(options_), or_null(model.data()), length,
                                                                  nullptr, or_null(&session_)));
    expect(made == (session_ != nullptr), "a session and an error, or neither");
  }
  void create_from_file() {
    destroy_session();
    succeeds(protrain_session_create(or_null(options_), bytes_.seldom() ? nullptr : "/nothing", or_null(&session_)));
    expect(session_ == nullptr, "a session of nothing");
  }
  void log() {
    protrain_session **user = bytes_.below(2) == 0 ? &session_ : nullptr;
    succeeds(protrain_session_set_log(session(), or_null(&log_line), user));
  }

  void ask_about_inputs() {
    std::size_t count = 0, rank = 0;
    const char *name = nullptr;
    std::int32_t dtype = 0;
    std::array<std::int64_t, 3> dims{};
    const std::size_t i = bytes_.below(4), room = bytes_.below(4);
    succeeds(protrain_session_input_count(session(), or_null(&count)));
    if (succeeds(protrain_session_input_name(session(), i, or_null(&name)))) expect(name != nullptr, "no name");
    succeeds(protrain_session_input_dtype(session(), i, or_null(&dtype)));
    succeeds(protrain_session_input_shape(session(), i, room == 0 ? nullptr : dims.data(), room, or_null(&rank)));
  }
  // Sets all inputs with the right type and shape.
  void set_inputs_rightly() {
    std::size_t count = 0;
    if (!succeeds(protrain_session_input_count(session_, &count))) return;
    for (std::size_t i = 0; i < count; ++i) {
      const char *lent = nullptr;
      std::int32_t dtype = 0;
      std::array<std::int64_t, 4> dims{};
      std::size_t rank = 0, elements = 1;
      if (!succeeds(protrain_session_input_name(session_, i, &lent))) return;
      const std::string name = lent;
      succeeds(protrain_session_input_dtype(session_, i, &dtype));
      succeeds(protrain_session_input_shape(session_, i, dims.data(), dims.size(), &rank));
      for (std::size_t d = 0; d < rank; ++d) elements *= static_cast<std::size_t>(dims.at(d));
      const std::vector<std::int64_t> ids(elements, bytes_.below(5));
      const std::vector<float> numbers(elements, bytes_.seldom() ? NAN : 0.5f);
      const bool whole = dtype == PROTRAIN_INT64;
      const void *data = whole ? static_cast<const void *>(ids.data()) : numbers.data();
      const std::size_t bytes = elements * (whole ? sizeof ids[0] : sizeof numbers[0]);
      expect(succeeds(protrain_session_set_input(session_, name.c_str(), dtype, dims.data(), rank, data, bytes)),
             "an input of the session's own shape is refused");
    }
  }
  void set_input() {
    constexpr std::int64_t kDims[] = {0, 1, 2, 3, 4, -1, 1ll << 40, INT64_MAX};
    std::array<std::int64_t, 4> dims{};
    for (std::int64_t &dim : dims) dim = kDims[bytes_.below(std::size(kDims))];
    const std::vector<std::byte> data(bytes_.byte(), std::byte{1});
    const std::size_t rank = bytes_.below(dims.size() + 1);
    const auto dtype = static_cast<std::int32_t>(bytes_.below(16));
    succeeds(protrain_session_set_input(session(), name(), dtype, or_null(dims.data()), rank, or_null(data.data()),
                                        data.size()));
  }

  void step() {
    constexpr float kUntouched = -12345;
    float loss = kUntouched;
    if (!succeeds(protrain_step(session(), or_null(&loss)))) expect(loss == kUntouched, "a loss beside an error");
  }
  void evaluate() {
    float loss = 0;
    succeeds(protrain_eval(session(), or_null(&loss)));
  }
  void ask_about_steps() {
    double norm = 0;
    std::uint64_t count = 0;
    succeeds(protrain_session_grad_norm(session(), or_null(&norm)));
    succeeds(protrain_session_step_count(session(), or_null(&count)));
    succeeds(protrain_session_rank(session(), &count));
    succeeds(protrain_session_rank_count(session(), &count));
  }
  void set_learning_rate() {
    constexpr double kRates[] = {0, 1e-3, 1, 1e30, -1, NAN, HUGE_VAL};
    succeeds(protrain_session_set_learning_rate(session(), kRates[bytes_.below(std::size(kRates))]));
  }
  void cancel() { protrain_session_cancel(session()); }

  void ask_about_parameters() {
    std::size_t count = 0, rank = 0, elements = 0;
    const char *lent = nullptr;
    std::array<std::int64_t, 2> dims{};
    const std::size_t i = bytes_.below(8);
    succeeds(protrain_session_parameter_count(session(), or_null(&count)));
    succeeds(protrain_session_parameter_name(session(), i, or_null(&lent)));
    succeeds(protrain_session_parameter_shape(session(), i, dims.data(), dims.size(), or_null(&rank)));
    succeeds(protrain_session_parameter_elements(session(), i, or_null(&elements)));
  }
  // An array of numbers. It may have the size of a parameter or a wrong size.
  std::vector<float> room() {
    constexpr std::size_t kSizes[] = {0, 1, 16, 20, 40, 64, 100, 4};
    return std::vector<float>(kSizes[bytes_.below(std::size(kSizes))], 0.25f);
  }
  void read_flat_parameters() {
    std::vector<float> values = room();
    succeeds(protrain_session_parameter_read(session(), name(), or_null(values.data()), values.size()));
    succeeds(protrain_session_flat_parameters_read(session(), or_null(values.data()), values.size()));
    succeeds(protrain_session_grad_read(session(), name(), or_null(values.data()), values.size()));
  }
  void write_flat_parameters() {
    const std::vector<float> values = room();
    succeeds(protrain_session_parameter_write(session(), name(), or_null(values.data()), values.size()));
    succeeds(protrain_session_flat_parameters_write(session(), or_null(values.data()), values.size()));
  }
  // Writes all parameters and reads them back.
  void round_trip() {
    std::size_t elements = 0;
    if (!succeeds(protrain_session_flat_parameters_elements(session(), &elements))) return;
    const std::vector<float> written(elements, 0.125f * static_cast<float>(bytes_.below(9)));
    std::vector<float> read(elements);
    if (!succeeds(protrain_session_flat_parameters_write(session_, written.data(), elements))) return;
    expect(succeeds(protrain_session_flat_parameters_read(session_, read.data(), elements)),
           "parameters that were written");
    expect(read == written, "other parameters than were written");
  }

  void save() {
    static const std::string folder = saved();
    if (succeeds(protrain_session_save(session(), bytes_.seldom() ? nullptr : folder.c_str())))
      expect(fs::exists(saved()), "nothing was saved");
  }
  void export_model() {
    static const std::string path = exported();
    if (succeeds(protrain_session_export(session(), bytes_.seldom() ? "/nothing/of/it" : path.c_str())))
      expect(fs::exists(path), "nothing was exported");
  }
  // The options of a session with adapters and an output that can be read.
  void set_adapters() {
    succeeds(protrain_options_set(options_, "lora", tokens_ ? "head" : "a*"));
    succeeds(protrain_options_set(options_, "lora_rank", "2"));
    succeeds(protrain_options_set(options_, "keep_outputs", "*"));
  }
  void export_adapters() {
    if (succeeds(protrain_session_export_adapters(session(), bytes_.seldom() ? nullptr : adapters().c_str())))
      expect(fs::exists(adapters()), "no adapters were exported");
  }
  void load_adapters() {
    succeeds(protrain_session_load_adapters(session(), bytes_.seldom() ? nullptr : adapters().c_str()));
  }
  void use_adapters() { succeeds(protrain_session_use_adapters(session(), bytes_.below(2) == 0 ? 0 : -7)); }
  void merge() {
    const std::string from = adapters(), to = merged();
    if (succeeds(protrain_model_merge(or_null(options_), or_null(model_file().c_str()), or_null(from.c_str()),
                                      or_null(to.c_str()))))
      expect(fs::exists(to), "nothing was merged");
  }
  void predict() { succeeds(protrain_predict(session())); }
  void ask_about_outputs() {
    std::size_t count = 0, rank = 0;
    const char *lent = nullptr;
    std::int32_t dtype = 0;
    std::array<std::int64_t, 3> dims{};
    const std::size_t i = bytes_.below(3), room = bytes_.below(4);
    succeeds(protrain_session_output_count(session(), or_null(&count)));
    if (succeeds(protrain_session_output_name(session(), i, or_null(&lent)))) expect(lent != nullptr, "no name");
    succeeds(protrain_session_output_dtype(session(), i, or_null(&dtype)));
    succeeds(protrain_session_output_shape(session(), i, room == 0 ? nullptr : dims.data(), room, or_null(&rank)));
  }
  void read_output() {
    std::vector<float> values = room();
    const std::int32_t dtype = bytes_.seldom() ? bytes_.byte() : std::int32_t{PROTRAIN_FLOAT32};
    succeeds(protrain_session_output_read(session(), name(), dtype, or_null(values.data()),
                                          values.size() * sizeof values[0]));
  }
  void check_gradients() {
    const char *text = nullptr;
    if (succeeds(protrain_session_check_gradients(session(), bytes_.below(3), or_null(&text)))) read_all_of(text);
  }
  void log_options() { succeeds(protrain_options_set_log(or_null(options_), or_null(&log_line), nullptr)); }

  void ask_for_texts() {
    const char *text = nullptr;
    if (succeeds(protrain_session_plan(session(), or_null(&text)))) read_all_of(text);
    if (succeeds(protrain_session_program(session(), or_null(&text)))) read_all_of(text);
    if (succeeds(protrain_session_graph(session(), or_null(&text)))) read_all_of(text);
    if (succeeds(protrain_session_report(session(), or_null(&text)))) read_all_of(text);
  }

  // New calls must be appended, because the corpus refers to calls by their numbers.
  static constexpr void (Calls::*kCalls[])() = {&Calls::set_usual,
                                                &Calls::create,
                                                &Calls::set_inputs_rightly,
                                                &Calls::step,
                                                &Calls::evaluate,
                                                &Calls::set_option,
                                                &Calls::set_input,
                                                &Calls::ask_about_inputs,
                                                &Calls::ask_about_steps,
                                                &Calls::set_learning_rate,
                                                &Calls::cancel,
                                                &Calls::ask_about_parameters,
                                                &Calls::read_flat_parameters,
                                                &Calls::write_flat_parameters,
                                                &Calls::round_trip,
                                                &Calls::save,
                                                &Calls::export_model,
                                                &Calls::ask_for_texts,
                                                &Calls::log,
                                                &Calls::destroy_session,
                                                &Calls::make_options,
                                                &Calls::create_nothing,
                                                &Calls::get_option,
                                                &Calls::help,
                                                &Calls::check,
                                                &Calls::create_from_file,
                                                &Calls::follow_plan,
                                                &Calls::set_adapters,
                                                &Calls::export_adapters,
                                                &Calls::load_adapters,
                                                &Calls::use_adapters,
                                                &Calls::merge,
                                                &Calls::predict,
                                                &Calls::ask_about_outputs,
                                                &Calls::read_output,
                                                &Calls::check_gradients,
                                                &Calls::log_options};

  Bytes bytes_;
  protrain_options *options_ = nullptr;
  protrain_session *session_ = nullptr;
  bool tokens_ = false;  // the model is token_model(), not layered_model()
  int created_ = 0;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  Calls(Bytes(data, size)).run();
  return 0;
}
