// The table of all options, and their checks. A new option is one row.
#include "draft/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "backend/backend.h"
#include "base/error.h"
#include "base/text.h"
#include "draft/binding.h"

namespace protrain::draft {

namespace {

using enum OptionType;

constexpr std::string_view kTypeNames[] = {"text", "integer", "real", "bytes", "choice", "list", "list"};

const OptionRow kOptions[] = {
    // The device, the arithmetic and the shapes of a step.
    {"device", choice, "cpu", backend::device_names(), "where the step is computed"},
    {"mode", choice, "train", "train|eval",
     "eval: the session computes losses and outputs alone; it has no memory for gradients and optimizer state, and "
     "refuses to step"},
    {"threads", integer, "0", ">= 0, <= 1024", "number of threads; 0: as many as the process may use"},
    {"precision", choice, "fp32", "fp32|bf16|fp16", "element type of weights and activations in a step"},
    {"export_precision", choice, "file", "file|fp32",
     "element type of the floats in an exported model: those of its file, or float32 instead of others"},
    {"export_weights", choice, "trained", "trained|ema",
     "the weights in an exported model: as they were trained, or their moving average (ema)"},
    {"eval_weights", choice, "trained", "trained|ema",
     "the weights that a session of mode=eval takes from a checkpoint: as they were trained, or their moving average"},
    {"export_adapters", choice, "merged", "merged|inputs",
     "the adapters in an exported model: merged into its weights, or inputs of it, which an .onnx_adapter file gives"},
    {"tf32", choice, "off", "on|off",
     "on: matrix products of float32 on a GPU use TensorFloat32, which rounds their factors to 10 bits of mantissa"},
    {"seed", integer, "0", ">= 0", "seed of all random numbers"},
    {"dim", list, "", "NAME=N", "binds a symbolic dimension of the model's inputs"},
    {"shapes", list, "", "NAME=N,...", "further bindings of symbolic dimensions: inputs may have these shapes too"},
    {"constant", list, "", "NAME=VALUE,...",
     "binds an input of the model to a value for all its elements, or to a list for its last axis; true and false are "
     "1 and 0"},
    {"past", choice, "", "none",
     "none: inputs that hold keys and values of earlier tokens, such as past_key_values, are empty"},
    {"packed", text, "", "NAME",
     "windows of tokens hold several documents: NAME is an int64 input, one of the graph or a new one, of each token's "
     "position in its document"},
    // Memory.
    {"memory", bytes, "", "> 0", "the budget, where device and host share their memory"},
    {"device_memory", bytes, "", "> 0", "budget of the device's memory"},
    {"host_memory", bytes, "", "> 0", "budget of the host's memory, pinned memory included"},
    {"disk_memory", bytes, "", "> 0", "budget of the file in offload_dir, or of the disk of hardware"},
    {"offload_dir", text, "", "DIR", "directory for training state that does not fit in memory"},
    {"plan", text, "", "FILE",
     "a plan to follow instead of searching for one: JSON, the whole plan or only its integers"},
    {"hardware", text, "", "NAME|FILE",
     "another machine to plan for: rtx3090, a100-80gb, h100-80gb, h200, or a JSON file that describes it"},
    {"profile_dir", text, "", "DIR",
     "directory for the measured times of kernels, copies and disk; else the user's cache directory"},
    // Parameters.
    {"trainable", list, "", "GLOB",
     "initializers to train, even if frozen matches them or the model would not train them by itself"},
    {"frozen", list, "", "GLOB", "parameters not to train, except those that trainable matches"},
    {"parameters_from", text, "", "FILE",
     "a list of the parameters to train, instead of the model's own: names, one a line, or a safetensors file"},
    {"tie", list, "", "GLOB|GLOB",
     "parameters to train as one, with the values of the first: of the same shape, or a matrix and its transpose"},
    {"batch_norm", choice, "", "train|frozen",
     "train: every BatchNormalization takes the statistics of its batch and updates the running ones, as PyTorch does; "
     "frozen: it uses the running ones as they are; else as the model was exported"},
    {"keep_gradients", list, "", "GLOB", "parameters whose gradients can be read after a step"},
    {"keep_outputs", list, "", "GLOB", "outputs of the graph that protrain_predict computes, to be read afterwards"},
    // Adapters (LoRA).
    {"lora", list, "", "GLOB[,rank=R][,alpha=A]",
     "parameters of products and lookups to train low-rank adapters for; all other parameters are frozen, except those "
     "that trainable matches"},
    {"lora_rank", integer, "8", ">= 1, <= 65536", "rank of adapters whose pattern gives none"},
    {"lora_alpha", real, "8", "> 0", "an adapter's change is scaled by alpha / rank, if its pattern gives no alpha"},
    {"lora_dropout", real, "0", ">= 0, < 1", "share of an adapted product's inputs that its adapter does not see"},
    {"lora_scaling", choice, "standard", "standard|rank_stabilised",
     "rank_stabilised: adapters are scaled by alpha / sqrt(rank) instead of alpha / rank"},
    {"adapter", text, "", "DIR",
     "goes on with the adapter in a directory, as Hugging Face's PEFT saves it: adapter_config.json and "
     "adapter_model.safetensors; instead of lora"},
    {"adapter_names", text, "", "FILE",
     "the modules of parameters, for models whose file has lost the names: INITIALIZER MODULE, one pair a line"},
    {"base_precision", choice, "file", "file|bf16|int8|nf4|int4",
     "the form that frozen weights are rounded to when they are loaded; bf16: all matrices; int8, nf4 and int4: those "
     "of products, in blocks with scales"},
    // The loss to add to the graph, for models whose file has no loss.
    {"loss", choice, "", "cross_entropy|mse|l1|bce|ctc|kl|cosine|triplet|infonce|dpo|mean",
     "the loss to add to the graph: cross_entropy for classes (label -100 is ignored), mse and l1 for numbers, bce for "
     "yes and no; ctc for texts that are spoken or written; kl for a teacher's logits; cosine, triplet and infonce for "
     "embeddings; dpo for pairs of texts; mean for an output that holds losses"},
    {"also_loss", list, "", "OUTPUT,loss=KIND,KEY=VALUE,...",
     "a further loss, of the same or another output, that is added to the loss: KEY is factor, labels, from, axis, "
     "shift, weights, label_smoothing, z_loss, focal, temperature, margin, blank, lengths, label_length or time_first, "
     "as in the options of the first loss"},
    {"loss_factor", real, "1", ">= 0", "factor of the first loss in the sum with those of also_loss"},
    {"loss_from", choice, "auto", "auto|logits|probabilities",
     "what the output holds, for cross_entropy, ctc and bce; auto: logits, unless a Softmax or Sigmoid makes it"},
    {"loss_output", text, "", "NAME",
     "the graph output, or the value between nodes, that the loss is computed from; else the first output with floats "
     "that is not a scalar; mean takes scalars too"},
    {"loss_labels", text, "labels", "NAME",
     "the input that holds the labels, one of the graph or a new one: int64 classes for cross_entropy and ctc, else "
     "float32"},
    {"loss_shift", integer, "0", ">= 0, <= 1", "1: each label is compared with the output one position earlier"},
    {"loss_axis", integer, "-1", ">= -16, <= 15",
     "cross_entropy, ctc: the axis of the output along which its classes lie"},
    {"loss_weights", text, "", "NAME",
     "cross_entropy: a new input of float32 factors, one for each label; the loss is a mean weighted by them, and 0 "
     "leaves a label out"},
    {"class_weights", text, "", "W,W,...", "cross_entropy: a factor of the loss for each class, as PyTorch's weight"},
    {"label_smoothing", real, "0", ">= 0, < 1",
     "cross_entropy: share of the target that all classes get evenly, as in PyTorch"},
    {"z_loss", real, "0", ">= 0",
     "cross_entropy: factor of the square of log(sum(exp(logits))), which is added to keep logits small"},
    {"focal", real, "0", ">= 0",
     "cross_entropy: exponent of 1 - p[label], which multiplies a label's loss, so that easy ones count for less"},
    {"loss_temperature", real, "1", "> 0", "kl, infonce: what logits or cosines are divided by"},
    {"loss_margin", real, "1", ">= 0", "triplet: how much nearer the positive should be than the negative"},
    {"loss_reference", text, "reference", "NAME",
     "dpo: a new input of float32, the log probability of each sample by the model that training starts from"},
    {"dpo_beta", real, "0.1", "> 0", "dpo: how little the model may move away from the one that training starts from"},
    {"loss_blank", integer, "0", ">= 0", "ctc: the class that stands for no label"},
    {"loss_lengths", text, "", "NAME",
     "ctc: an int64 input, one of the graph or a new one, of the number of times that each sample has in the output; "
     "else all have as many"},
    {"loss_label_length", integer, "", ">= 1, <= 1048576",
     "ctc: the length of a row of labels, in which -100 fills up what a sample does not need; else as many as times"},
    {"loss_time_first", integer, "0", ">= 0, <= 1",
     "ctc: 1: the output's axes are time, sample and class; 0: sample, time and class"},
    // The optimizer.
    {"optimizer", choice, "adamw", "adamw|adamw8bit|adam|sgd|adagrad|lion",
     "how gradients become updates; adamw8bit is adamw with moments of 8 bits"},
    {"learning_rate", real, "0.001", ">= 0", "step size; protrain_session_set_learning_rate changes it between steps"},
    {"schedule", choice, "constant", "constant|linear|cosine|step|inverse_sqrt",
     "how the learning rate changes: linear and cosine fall to final_learning_rate by step total_steps, step falls by "
     "step_factor after every step_interval steps, inverse_sqrt with the root of the step's number"},
    {"warmup_steps", integer, "0", ">= 0",
     "first steps, in which the learning rate rises: step n of N has n / N of it"},
    {"total_steps", integer, "", "> 0", "schedule linear, cosine: the number of steps, warm-up included"},
    {"final_learning_rate", real, "0", ">= 0", "schedule linear, cosine: the learning rate after total_steps steps"},
    {"step_interval", integer, "", "> 0", "schedule step: steps between two reductions"},
    {"step_factor", real, "0.1", ">= 0, <= 1", "schedule step: what the learning rate is multiplied by"},
    {"group", list, "", "GLOB,KEY=VALUE,...",
     "parameters with settings of their own: learning_rate_scale, a factor of the learning rate, and weight_decay; of "
     "several groups that match, the first holds"},
    {"no_decay", words, "", "norms|biases",
     "parameters that do not decay, unless a group says so: norms, the scales and shifts of normalizations; biases, "
     "vectors that are added"},
    {"layer_decay", real, "1", "> 0, <= 1",
     "factor of the learning rate from each repeated layer to the one before; what follows the last layer has the full "
     "rate"},
    {"beta1", real, "0.9", ">= 0, < 1",
     "adamw, adam: decay of the mean of gradients; lion: of the mean whose sign is the step"},
    {"beta2", real, "0.999", ">= 0, < 1",
     "adamw, adam: decay of the mean of squared gradients; lion: of the mean of gradients, default 0.99"},
    {"epsilon", real, "1e-08", ">= 1e-38", "adamw, adam, adagrad: added to the root of the mean, or sum, of squares"},
    {"correction", choice, "moments", "moments|rate|none",
     "adamw, adam: what is corrected because moments begin at zero; moments: each of them, as in PyTorch; rate: the "
     "learning rate, so that epsilon is added to the uncorrected root, as in ONNX, TensorFlow and Hugging Face; none: "
     "nothing"},
    {"weight_decay", real, "0.01", ">= 0",
     "adamw: decoupled decay; lion: likewise, default 0; the others: added to the gradient, default 0, times the "
     "weight"},
    {"decay_order", choice, "before", "before|after", "adamw: weights decay before the step is taken, or after it"},
    {"momentum", real, "0", ">= 0, < 1", "sgd: share of the last update that is added to the next"},
    {"dampening", real, "0", ">= 0, < 1",
     "sgd: share of the gradient that momentum leaves out, from the second step on"},
    {"nesterov", choice, "off", "on|off", "on: sgd steps from where momentum will lead"},
    {"rate_decay", real, "0", ">= 0", "adagrad: step t has the learning rate divided by 1 + (t - 1) * rate_decay"},
    {"ema", real, "0", ">= 0, < 1",
     "decay of a moving average of trained weights, which each step takes in, as PyTorch's AveragedModel does; 0: "
     "none"},
    {"clip_norm", real, "", "> 0", "largest global norm of the gradients; if it is exceeded, all are scaled down"},
    {"clip_value", real, "", "> 0", "largest magnitude of an element of a gradient, after clip_norm"},
    {"on_nonfinite", choice, "stop", "stop|skip|rollback",
     "what a NaN or infinity does: stop at once, skip the update, or stop as if the step had not begun"},
    {"tokens_per_step", integer, "", "> 0", "tokens in one update; if a batch holds fewer, gradients are accumulated"},
    {"accumulation", integer, "1", ">= 1", "batches whose gradients make one update"},
    // Several ranks: processes that train one model together.
    {"comm", choice, "auto", "auto|none|mpi|gloo|nccl",
     "how ranks reach each other; auto: MPI under mpirun or srun, Gloo if rendezvous is set, else there is one rank; "
     "several GPUs exchange over NCCL if they can, and nccl refuses to go on without"},
    {"ranks", integer, "1", ">= 1, <= 4096",
     "the number of ranks; a launcher of MPI gives it, and a plan for other hardware is for so many devices"},
    {"rank", integer, "0", ">= 0, < 4096", "the number of this rank, from 0; a launcher of MPI gives it"},
    {"rendezvous", text, "", "DIR|HOST:PORT",
     "where the ranks of Gloo meet: a directory that all share, new for each session, or an address of rank 0"},
    {"rank_sums", choice, "ordered", "ordered|local",
     "ordered: accumulated gradients are exchanged after each batch and added in the order of all batches; local: each "
     "rank adds its own and exchanges once a step, and bits depend on the number of ranks"},
    {"comm_timeout", real, "300", "> 0, <= 86400", "seconds after which a rank no longer waits for another"},
    // Reports.
    {"trace", choice, "none", "none|step",
     "step: reports and plans as JSON are traces of a step too, with each instruction, as Perfetto opens them"},
    // Resuming.
    {"resume", text, "", "DIR",
     "continues from a checkpoint, or from the newest one in a directory: weights, optimizer state, step, "
     "seed"},
    // For tests.
    {"trial", words, "", "workers|delays|poison",
     "one worker per queue; sleeps before instructions; released memory filled with NaN"},
};

// The customary defaults of some optimizers, where these differ from the defaults in kOptions.
struct OwnDefault {
  std::string_view key, optimizers, fallback;
};
constexpr OwnDefault kOwnDefaults[] = {{"weight_decay", "adam|sgd|adagrad|lion", "0"}, {"beta2", "lion", "0.99"}};

// Names that other tools give an option, and what to say of them.
struct OtherName {
  std::string_view name, hint;
};
constexpr OtherName kOtherNames[] = {{"lr", "'learning_rate'"},
                                     {"batch", "'dim', such as batch=8"},
                                     {"batch_size", "'dim', such as batch=8"},
                                     {"sequence_length", "'dim', such as sequence=512"},
                                     {"max_grad_norm", "'clip_norm'"},
                                     {"gradient_clipping", "'clip_norm'"},
                                     {"gradient_accumulation_steps", "'accumulation'"}};

const OptionRow &row_of(const std::string &key) {
  const auto *const row = std::ranges::find(kOptions, key, &OptionRow::key);
  if (row != std::end(kOptions)) return *row;
  const auto *const other = std::ranges::find(kOtherNames, key, &OtherName::name);
  if (other != std::end(kOtherNames))
    fail(Code::arg, key, "there is no option '{}'; did you mean {}?", key, other->hint);
  std::vector<std::string_view> keys;
  for (const OptionRow &r : kOptions) keys.push_back(r.key);
  const std::string nearest = nearest_word(key, keys);
  fail(Code::arg, printable(key), "there is no option '{}'{}", printable(key),
       nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
}

// True if `number` meets one condition, such as ">= 0", "> 0", "<= 8" or "< 1".
bool holds(std::string_view condition, double number) {
  const std::size_t digits = condition.find_first_of("-.0123456789");
  const double bound = parse_real(condition.substr(digits)).value();
  const std::string_view sign = condition.substr(0, digits - 1);
  if (sign == ">=") return number >= bound;
  if (sign == "<=") return number <= bound;
  return sign == ">" ? number > bound : number < bound;
}

// Throws Code::arg unless `value` was parsed to a number that meets the row's conditions. `expected` continues the
// text "'...' is not ".
template <typename Number>
void check_number(const OptionRow &row, const std::string &value, Number number, std::string_view expected) {
  require(number.has_value(), Code::arg, std::string(row.key), "'{}' is not {}", printable(value), expected);
  for (std::string condition : split(row.range, ',')) {
    if (condition.starts_with(' ')) condition.erase(0, 1);
    require(holds(condition, static_cast<double>(*number)), Code::arg, std::string(row.key), "{} is out of range: {}",
            printable(value), row.range);
  }
}

// The form of a value that consists of several parts, such as "NAME=N". The form applies to each row of kOptions that
// has the same `range`.
struct Form {
  std::string_view range;
  bool (*fits)(const std::string &value);
  std::string_view expected;  // continues "'...' is not "
};

template <auto Parse>
bool parses(const std::string &value) {
  return Parse(value).has_value();
}

// True if `value` is a list of parts, separated by commas, and Fits() is true for each part.
template <bool (*Fits)(const std::string &part)>
bool all_fit(const std::string &value) {
  return std::ranges::all_of(split(value, ','), Fits);
}

bool is_factor(const std::string &value) {
  const std::optional<double> number = parse_real(value);
  return number && std::isfinite(*number) && *number >= 0;
}

const Form kForms[] = {
    {"NAME=N", parses<parse_binding>, "NAME=N with N >= 0"},
    {"NAME=N,...", all_fit<parses<parse_binding>>, "NAME=N,... with every N >= 0"},
    {"NAME=VALUE,...", parses<parse_input_binding>, "NAME=VALUE or NAME=VALUE,VALUE,... with numbers, true or false"},
    {"GLOB[,rank=R][,alpha=A]", parses<parse_lora>, "GLOB[,rank=R][,alpha=A] with a whole R >= 1 and A > 0"},
    {"GLOB,KEY=VALUE,...", parses<parse_group_binding>,
     "GLOB,KEY=VALUE,... with the keys learning_rate_scale and weight_decay, and numbers >= 0"},
    {"W,W,...", all_fit<is_factor>, "a list of factors W,W,... with every W >= 0"},
};

// Throws Code::arg unless each word of the list is one of the row's words.
void check_words(const OptionRow &row, const std::string &value) {
  for (const std::string &word : split(value, ','))
    require(any_glob(row.range, word), Code::arg, std::string(row.key), "'{}' is none of {}", printable(word),
            row.range);
}

void check_value(const OptionRow &row, const std::string &value);

// Throws unless `value` has the form OUTPUT,loss=KIND,KEY=VALUE,... and each VALUE is valid for the option that its KEY
// stands for.
void check_also_loss(const std::string &value) {
  const char *const option = "also_loss";
  require(value.find(",class_weights=") == std::string::npos, Code::unsupported, option,
          "class_weights is a list, and the settings of also_loss are single values; make this loss the first one");
  const std::optional<AlsoLoss> also = parse_also_loss(value);
  require(also.has_value(), Code::arg, option,
          "'{}' is not OUTPUT,loss=KIND,KEY=VALUE,... with the keys factor, labels, from, axis, shift, weights, "
          "label_smoothing, z_loss, focal, temperature, margin, blank, lengths, label_length and time_first",
          printable(value));
  for (const AlsoLoss::Setting &setting : also->settings) {
    require(setting.key != "loss" || setting.value != "dpo", Code::unsupported, option,
            "dpo can only be the first loss; set loss=dpo, and the other losses with also_loss");
    try {
      check_value(row_of(setting.option), setting.value);
    } catch (const Error &error) {
      fail(error.code, option, "{}: {}", setting.key, error.text);
    }
  }
}

void check_value(const OptionRow &row, const std::string &value) {
  if (row.key == "also_loss") check_also_loss(value);
  if (row.type == integer) check_number(row, value, parse_integer(value), "an integer");
  if (row.type == real) check_number(row, value, parse_real(value), "a number");
  if (row.type == bytes)
    check_number(row, value, parse_bytes(value), "a size such as 20GiB, in B, KB, MB, GB, TB, KiB, MiB, GiB or TiB");
  if (row.type == choice)
    require(any_glob(row.range, value), Code::arg, std::string(row.key), "'{}' is none of {}", printable(value),
            row.range);
  if (row.type == words) check_words(row, value);
  for (const Form &form : kForms)
    if (form.range == row.range)
      require(form.fits(value), Code::arg, std::string(row.key), "'{}' is not {}", printable(value), form.expected);
}

}  // namespace

std::span<const OptionRow> option_table() { return kOptions; }

void Options::set(const std::string &key, const std::string &value) {
  const OptionRow &row = row_of(key);
  require(!value.empty() && value.find('\0') == std::string::npos, Code::arg, key, "{} needs a value", key);
  check_value(row, value);
  const bool gains = row.type == OptionType::list || row.type == OptionType::words;
  std::vector<std::string> values = gains ? list(key) : std::vector<std::string>();
  values.push_back(value);
  set_.insert_or_assign(key, std::move(values));  // only now: whatever fails has changed nothing
}

void Options::clear(const std::string &key) {
  row_of(key);
  set_.erase(key);
}

bool Options::is_set(const std::string &key) const {
  row_of(key);
  return set_.contains(key);
}

std::string Options::get(const std::string &key) const {
  const OptionRow &row = row_of(key);
  if (const auto found = set_.find(key); found != set_.end()) return fmt::format("{}", fmt::join(found->second, "\n"));
  const auto *const own = std::ranges::find_if(kOwnDefaults, [&](const OwnDefault &one) {
    return one.key == key && any_glob(one.optimizers, get("optimizer"));
  });
  return std::string(own == std::end(kOwnDefaults) ? row.fallback : own->fallback);
}

std::int64_t Options::integer(const std::string &key) const { return parse_integer(get(key)).value_or(0); }

double Options::real(const std::string &key) const { return parse_real(get(key)).value_or(0); }

std::uint64_t Options::bytes(const std::string &key) const { return parse_bytes(get(key)).value_or(0); }

std::vector<std::string> Options::list(const std::string &key) const {
  row_of(key);
  const auto found = set_.find(key);
  return found == set_.end() ? std::vector<std::string>{} : found->second;
}

std::string Options::help() {
  std::vector<std::string> rows;
  for (const OptionRow &row : kOptions)
    rows.push_back(fmt::format(R"({{"key":"{}","type":"{}","default":"{}","range":"{}","sentence":"{}"}})", row.key,
                               kTypeNames[static_cast<int>(row.type)], row.fallback, row.range, row.sentence));
  return fmt::format("[{}]", fmt::join(rows, ",\n "));
}

}  // namespace protrain::draft
