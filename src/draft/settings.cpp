#include "draft/settings.h"

#include <cmath>
#include <initializer_list>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "draft/binding.h"

namespace protrain::draft {

namespace {

// The texts that an option can have, each with the value that it stands for.
template <typename Value>
using Choices = std::initializer_list<std::pair<const char *, Value>>;

constexpr Choices<DType> kPrecisions = {{"fp32", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}};

// Returns what the option's text stands for. `choices` has every text that the option can have.
template <typename Value>
Value choice_of(const Options &options, const char *key, const Choices<Value> &choices) {
  const std::string text = options.get(key);
  for (const auto &[name, value] : choices)
    if (text == name) return value;
  fail(Code::internal, key, "{} is '{}', which stands for nothing", key, printable(text));
}

std::vector<double> reals_of(const std::string &text) {
  std::vector<double> numbers;
  if (text.empty()) return numbers;
  for (const std::string &number : split(text, ',')) numbers.push_back(parse_real(number).value());
  return numbers;
}

// An option about the loss, and the losses that read this option.
struct LossOption {
  const char *key, *losses;  // `losses` are globs
};
constexpr LossOption kLossOptions[] = {{"loss_axis", "cross_entropy|ctc"},
                                       {"loss_weights", "cross_entropy"},
                                       {"label_smoothing", "cross_entropy"},
                                       {"z_loss", "cross_entropy"},
                                       {"class_weights", "cross_entropy"},
                                       {"focal", "cross_entropy"},
                                       {"loss_labels", "cross_entropy|mse|l1|bce|dpo|kl|cosine|ctc"},
                                       {"loss_shift", "cross_entropy|mse|l1|bce|dpo"},
                                       {"loss_temperature", "kl|infonce"},
                                       {"loss_margin", "triplet"},
                                       {"loss_reference", "dpo"},
                                       {"dpo_beta", "dpo"},
                                       {"loss_blank", "ctc"},
                                       {"loss_lengths", "ctc"},
                                       {"loss_label_length", "ctc"},
                                       {"loss_time_first", "ctc"},
                                       {"loss_output", "*"},
                                       {"loss_factor", "*"},
                                       {"also_loss", "*"},
                                       {"loss_from", "*"}};  // require_fitting_options() checks more

// Throws Code::arg if an option is set that the chosen loss does not read.
void require_fitting_keys(const Options &options) {
  for (const auto &[key, losses] : kLossOptions)
    require(!options.is_set(key) || any_glob(losses, options.get("loss")), Code::arg, key,
            "{} is for {}, the loss is {}", key, losses, options.get("loss"));
}

std::vector<std::string> words_of(const Options &options, const char *key) {
  std::vector<std::string> words;
  for (const std::string &item : options.list(key))
    for (const std::string &word : split(item, ',')) words.push_back(word);
  return words;
}

passes::Loss::Kind loss_kind_of(const Options &options) {
  using enum passes::Loss::Kind;
  return choice_of<passes::Loss::Kind>(options, "loss",
                                       {{"cross_entropy", cross_entropy},
                                        {"mse", mse},
                                        {"l1", l1},
                                        {"bce", bce},
                                        {"dpo", dpo},
                                        {"kl", kl},
                                        {"cosine", cosine},
                                        {"triplet", triplet},
                                        {"infonce", infonce},
                                        {"mean", mean},
                                        {"ctc", ctc}});
}

// Throws Code::arg or Code::unsupported if options are set that do not go together with the loss or with each other.
void require_fitting_options(const Options &options, passes::Loss::Kind kind) {
  using Kind = passes::Loss::Kind;
  require(kind == Kind::cross_entropy || kind == Kind::bce || kind == Kind::ctc || !options.is_set("loss_from"),
          Code::arg, "loss_from",
          "loss_from says what cross_entropy, ctc and bce are given; {} compares numbers as they are",
          options.get("loss"));
  require_fitting_keys(options);
  require(options.real("focal") == 0 || (options.real("label_smoothing") == 0 && options.real("z_loss") == 0),
          Code::unsupported, "focal", "focal goes neither with label_smoothing nor with z_loss; leave one of them out");
  require(!options.is_set("class_weights") || options.real("label_smoothing") == 0, Code::unsupported, "class_weights",
          "class_weights and label_smoothing do not go together; leave one of them out");
  const bool shift = options.integer("loss_shift") != 0;
  require(kind == Kind::cross_entropy || !shift || !options.is_set("packed"), Code::unsupported, "packed",
          "packed documents and loss_shift go together with loss=cross_entropy alone; shift the labels in the data");
  require((kind != Kind::ctc && kind != Kind::dpo) || !options.is_set("packed"), Code::unsupported, "packed",
          "{} is a loss of whole samples, which are not packed into one window; leave out the option packed",
          options.get("loss"));
}

// Returns the loss that the options describe. Leaves out the losses of also_loss.
passes::Loss loss_of(const Options &options) {
  using From = passes::Loss::From;
  const passes::Loss::Kind kind = loss_kind_of(options);
  require_fitting_options(options, kind);
  const bool shift = options.integer("loss_shift") != 0;
  return passes::Loss{
      .kind = kind,
      .output = options.get("loss_output"),
      .labels = options.get("loss_labels"),
      .shift = shift,
      .from = choice_of<From>(
          options, "loss_from",
          {{"auto", From::automatic}, {"logits", From::logits}, {"probabilities", From::probabilities}}),
      .positions = shift ? options.get("packed") : "",
      .weights = options.get("loss_weights"),
      .class_axis = options.integer("loss_axis"),
      .label_smoothing = options.real("label_smoothing"),
      .z_loss = options.real("z_loss"),
      .class_weights = reals_of(options.get("class_weights")),
      .focal = options.real("focal"),
      .reference = options.get("loss_reference"),
      .beta = options.real("dpo_beta"),
      .temperature = options.real("loss_temperature"),
      .margin = options.real("loss_margin"),
      .factor = options.real("loss_factor"),
      .blank = options.integer("loss_blank"),
      .label_length = options.integer("loss_label_length"),
      .lengths = options.get("loss_lengths"),
      .time_first = options.integer("loss_time_first") != 0};
}

// Returns the loss of an item of also_loss. The form of the item was checked when the option was set.
passes::Loss also_loss_of(const std::string &item, const Options &all) {
  const AlsoLoss also = parse_also_loss(item).value();
  Options options;
  options.set("loss_output", also.output);
  if (all.is_set("packed")) options.set("packed", all.get("packed"));
  for (const AlsoLoss::Setting &setting : also.settings) options.set(setting.option, setting.value);
  try {
    return loss_of(options);
  } catch (const Error &error) {
    fail(error.code, "also_loss", "{}: {}", printable(also.output), error.text);
  }
}

// Returns all losses that the options attach, including those of also_loss.
std::vector<passes::Loss> losses_of(const Options &options) {
  if (!options.is_set("loss")) {
    for (const LossOption &option : kLossOptions)
      require(!options.is_set(option.key), Code::arg, option.key, "{} has no effect unless the option loss is set",
              option.key);
    return {};
  }
  std::vector<passes::Loss> losses = {loss_of(options)};
  for (const std::string &item : options.list("also_loss")) losses.push_back(also_loss_of(item, options));
  return losses;
}

backend::Optimizer optimizer_of(const Options &options) {
  using Kind = backend::Optimizer::Kind;
  using Correction = backend::Optimizer::Correction;
  const std::string name = options.get("optimizer");
  const bool needs_momentum = options.get("nesterov") == "on" || options.real("dampening") > 0;
  require(name != "sgd" || !needs_momentum || options.real("momentum") > 0, Code::arg, "momentum",
          "nesterov and dampening have no effect unless momentum is above 0");
  return {.kind = choice_of<Kind>(options, "optimizer",
                                  {{"adamw", Kind::adamw},
                                   {"adamw8bit", Kind::adamw},
                                   {"adam", Kind::adamw},
                                   {"sgd", Kind::sgd},
                                   {"adagrad", Kind::adagrad},
                                   {"lion", Kind::lion}}),
          .correction = choice_of<Correction>(
              options, "correction",
              {{"moments", Correction::moments}, {"rate", Correction::rate}, {"none", Correction::none}}),
          .decoupled = name != "adam",
          .decays_after = options.get("decay_order") == "after",
          .nesterov = options.get("nesterov") == "on",
          .coded = name == "adamw8bit",
          .beta1 = options.real("beta1"),
          .beta2 = options.real("beta2"),
          .epsilon = options.real("epsilon"),
          .weight_decay = options.real("weight_decay"),
          .momentum = options.real("momentum"),
          .dampening = options.real("dampening"),
          .rate_decay = options.real("rate_decay"),
          .average = options.real("ema"),
          .clip_value = options.real("clip_value")};
}

bool export_average_of(const Options &options) {
  const bool average = options.get("export_weights") == "ema";
  require(!average || options.real("ema") > 0, Code::arg, "export_weights",
          "there is no moving average to export; set ema, such as ema=0.999");
  require(!average || options.get("mode") == "train", Code::arg, "export_weights",
          "a session of mode=eval exports nothing; set eval_weights=ema to evaluate the averages");
  return average;
}

bool eval_average_of(const Options &options) {
  const bool average = options.get("eval_weights") == "ema";
  require(!average || (options.get("mode") == "eval" && options.is_set("resume")), Code::arg, "eval_weights",
          "the moving averages come from a checkpoint; set mode=eval and resume");
  return average;
}

// Throws Code::arg if one of `keys` is set although the schedule does not read these keys. `taken` is true if the
// schedule reads them. `taker` names the schedules that read them.
void require_schedule(const Options &options, std::initializer_list<const char *> keys, bool taken, const char *taker) {
  for (const char *key : keys)
    require(taken || !options.is_set(key), Code::arg, key, "{} has no effect unless schedule is {}", key, taker);
}

Schedule schedule_of(const Options &options) {
  using Kind = Schedule::Kind;
  const Schedule schedule = {.kind = choice_of<Kind>(options, "schedule",
                                                     {{"constant", Kind::constant},
                                                      {"linear", Kind::linear},
                                                      {"cosine", Kind::cosine},
                                                      {"step", Kind::step},
                                                      {"inverse_sqrt", Kind::inverse_sqrt}}),
                             .warmup = static_cast<std::uint64_t>(options.integer("warmup_steps")),
                             .total = static_cast<std::uint64_t>(options.integer("total_steps")),
                             .final_rate = options.real("final_learning_rate"),
                             .interval = static_cast<std::uint64_t>(options.integer("step_interval")),
                             .factor = options.real("step_factor")};
  const bool ends = schedule.kind == Kind::linear || schedule.kind == Kind::cosine, falls = schedule.kind == Kind::step;
  require_schedule(options, {"total_steps", "final_learning_rate"}, ends, "linear or cosine");
  require_schedule(options, {"step_interval", "step_factor"}, falls, "step");
  require(!ends || options.is_set("total_steps"), Code::arg, "total_steps",
          "schedule {} ends after total_steps steps; set total_steps", options.get("schedule"));
  require(!ends || schedule.total > schedule.warmup, Code::arg, "total_steps",
          "total_steps is {}, and the warm-up alone takes {} steps; set more", schedule.total, schedule.warmup);
  require(!falls || options.is_set("step_interval"), Code::arg, "step_interval",
          "schedule step reduces the learning rate after every step_interval steps; set step_interval");
  return schedule;
}

GroupSettings groups_of(const Options &options) {
  GroupSettings settings = {.layer_decay = options.real("layer_decay")};
  for (const std::string &text : options.list("group"))
    settings.groups.push_back(parse_group_binding(text).value());  // checked when it was set
  for (const std::string &word : words_of(options, "no_decay")) {
    settings.norms_stay |= word == "norms";
    settings.biases_stay |= word == "biases";
  }
  return settings;
}

TestModes test_modes_of(const Options &options) {
  TestModes test_modes;
  for (const std::string &trial : words_of(options, "trial")) {
    test_modes.workers |= trial == "workers";
    test_modes.delays |= trial == "delays";
    test_modes.poison |= trial == "poison";
  }
  return test_modes;
}

onnx_import::DimBindings dims_of(const Options &options) {
  onnx_import::DimBindings dims;
  for (const std::string &item : options.list("dim")) {
    const Binding binding = parse_binding(item).value();  // checked when it was set
    const auto [at, fresh] = dims.emplace(binding.name, binding.size);
    require(fresh || at->second == binding.size, Code::shape, at->first, "dim {} is bound to both {} and {}", at->first,
            at->second, binding.size);
  }
  return dims;
}

std::vector<onnx_import::DimBindings> shapes_of(const Options &options) {
  std::vector<onnx_import::DimBindings> shapes;
  for (const std::string &items : options.list("shapes")) {
    onnx_import::DimBindings &dims = shapes.emplace_back();
    for (const std::string &item : split(items, ',')) {
      const Binding binding = parse_binding(item).value();
      dims[binding.name] = binding.size;
    }
  }
  return shapes;
}

onnx_import::InputValues constants_of(const Options &options) {
  onnx_import::InputValues constants;
  for (const std::string &item : options.list("constant")) {
    const InputBinding binding = parse_input_binding(item).value();  // checked when it was set
    const auto [at, fresh] = constants.emplace(binding.name, binding.values);
    require(fresh || at->second == binding.values, Code::arg, at->first, "input {} is bound to two values", at->first);
  }
  return constants;
}

const passes::Rounding *base_precision_of(const Options &options) {
  require(options.get("base_precision") != "bf16" || options.get("precision") != "fp16", Code::arg, "base_precision",
          "a step in fp16 takes frozen weights in fp16; leave base_precision=bf16 out, or choose precision=bf16");
  return passes::find_rounding(options.get("base_precision"));
}

std::vector<passes::AdapterRequest> adapters_of(const Options &options) {
  for (const char *key : {"lora_rank", "lora_alpha", "lora_dropout", "lora_scaling"})
    require(options.is_set("lora") || !options.is_set(key), Code::arg, key,
            "{} has no effect unless the option lora is set", key);
  require(!options.is_set("lora") || !options.is_set("adapter"), Code::arg, "adapter",
          "adapter says what is adapted, and so does lora; set one of them");
  for (const char *key : {"adapter_names", "export_adapters"})
    require(options.is_set("lora") || options.is_set("adapter") || !options.is_set(key), Code::arg, key,
            "{} has no effect unless the option lora or adapter is set", key);
  const bool stabilised = options.get("lora_scaling") == "rank_stabilised";
  std::vector<passes::AdapterRequest> requests;
  for (const std::string &item : options.list("lora")) {
    const LoraPattern lora = parse_lora(item).value();  // checked when it was set
    requests.push_back({.pattern = lora.pattern,
                        .rank = lora.rank.value_or(options.integer("lora_rank")),
                        .alpha = lora.alpha.value_or(options.real("lora_alpha")),
                        .stabilised = stabilised,
                        .dropout = options.real("lora_dropout")});
  }
  return requests;
}

std::vector<std::string> kept_gradients_of(const Options &options) {
  require(!options.is_set("keep_gradients") || options.get("mode") == "train", Code::arg, "keep_gradients",
          "a session of mode=eval has no gradients; leave one of the two options out");
  return options.list("keep_gradients");
}

std::optional<std::uint64_t> bytes_of(const Options &options, const char *key) {
  return options.is_set(key) ? std::optional(options.bytes(key)) : std::nullopt;
}

std::optional<std::uint64_t> disk_memory_of(const Options &options) {
  const std::optional<std::uint64_t> bytes = bytes_of(options, "disk_memory");
  require(!bytes || options.is_set("offload_dir") || options.is_set("hardware"), Code::arg, "disk_memory",
          "disk_memory has no effect unless offload_dir names a directory on the disk");
  return bytes;
}

std::optional<std::int64_t> integer_of(const Options &options, const char *key) {
  return options.is_set(key) ? std::optional(options.integer(key)) : std::nullopt;
}

RankSettings ranks_of(const Options &options) {
  const RankSettings ranks = {.comm = options.get("comm"),
                              .rank = static_cast<int>(options.integer("rank")),
                              .count = static_cast<int>(options.integer("ranks")),
                              .rendezvous = options.get("rendezvous"),
                              .timeout = std::chrono::milliseconds(std::llround(options.real("comm_timeout") * 1000)),
                              .local_sums = options.get("rank_sums") == "local"};
  require(ranks.rank < ranks.count, Code::arg, "rank", "rank {} of {} ranks: ranks count from 0", ranks.rank,
          ranks.count);
  return ranks;
}

}  // namespace

Settings settings_of(const Options &options) {
  return {
      .device = options.get("device"),
      .trains = options.get("mode") == "train",
      .threads = static_cast<int>(options.integer("threads")),
      .precision = choice_of(options, "precision", kPrecisions),
      .export_as_computed = options.get("export_precision") == "fp32",
      .export_average = export_average_of(options),
      .eval_average = eval_average_of(options),
      .export_adapters_as_inputs = options.get("export_adapters") == "inputs",
      .tf32 = options.get("tf32") == "on",
      .seed = integer_of(options, "seed"),
      .dims = dims_of(options),
      .shapes = shapes_of(options),
      .constants = constants_of(options),
      .without_past = options.get("past") == "none",
      .packed = options.get("packed"),
      .memory = bytes_of(options, "memory"),
      .device_memory = bytes_of(options, "device_memory"),
      .host_memory = bytes_of(options, "host_memory"),
      .disk_memory = disk_memory_of(options),
      .offload_dir = options.get("offload_dir"),
      .plan = options.get("plan"),
      .hardware = options.get("hardware"),
      .profile_dir = options.get("profile_dir"),
      .trainable = options.list("trainable"),
      .frozen = options.list("frozen"),
      .tie = options.list("tie"),
      .keep_gradients = kept_gradients_of(options),
      .keep_outputs = options.list("keep_outputs"),
      .adapters = adapters_of(options),
      .adapter = options.get("adapter"),
      .adapter_names = options.get("adapter_names"),
      .base_precision = base_precision_of(options),
      .parameters_from = options.get("parameters_from"),
      .batch_norm = choice_of<passes::BatchNorm>(options, "batch_norm",
                                                 {{"", passes::BatchNorm::as_exported},
                                                  {"train", passes::BatchNorm::train},
                                                  {"frozen", passes::BatchNorm::frozen}}),
      .losses = losses_of(options),
      .optimizer = optimizer_of(options),
      .learning_rate = options.real("learning_rate"),
      .schedule = schedule_of(options),
      .groups = groups_of(options),
      .clip_norm = options.real("clip_norm"),
      .on_nonfinite = choice_of<NonfinitePolicy>(
          options, "on_nonfinite",
          {{"stop", NonfinitePolicy::stop}, {"skip", NonfinitePolicy::skip}, {"rollback", NonfinitePolicy::rollback}}),
      .tokens_per_step = integer_of(options, "tokens_per_step"),
      .accumulation = integer_of(options, "accumulation"),
      .ranks = ranks_of(options),
      .traces = options.get("trace") == "step",
      .resume = options.get("resume"),
      .test_modes = test_modes_of(options)};
}

void take_declared(Settings &settings, const Options &options, const graph::FileDeclarations &declared) {
  if (!settings.trains || !declared.training || options.is_set("optimizer")) return;
  if (declared.training->refusal) throw *declared.training->refusal;
  Options all = options;
  for (const auto &[key, value] : declared.training->options)
    if (!options.is_set(key)) all.set(key, value);
  const Settings said = settings_of(all);
  settings.optimizer = said.optimizer;
  settings.optimizer.earlier_steps = declared.training->steps;
  settings.learning_rate = said.learning_rate;
  settings.clip_norm = said.clip_norm;
  settings.declared_state = !declared.training->moments.empty();
}

const char *precision_name(DType precision) {
  for (const auto &[name, other] : kPrecisions)
    if (precision == other) return name;
  fail(Code::internal, "precision", "{} is no precision of a session", name_of(precision));
}

}  // namespace protrain::draft
