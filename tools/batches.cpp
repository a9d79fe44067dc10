// Matches the model's inputs with data files. The files decide the sizes of dimensions that are not bound.
#include "batches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "safetensors.h"
#include "session_flags.h"

namespace tool {

namespace {

// Returns the file of each input that `word` feeds, by the input's name. `word` is a value of `flag` (such as --input)
// that is not NAME=FILE. A directory feeds each input for which it has a file NAME.npy. A safetensors file feeds each
// input for which it has a tensor NAME.
std::map<std::string, std::string> files_of_inputs(const std::string &flag, const std::string &word,
                                                   const std::vector<ModelInput> &inputs) {
  std::map<std::string, std::string> files;
  std::error_code none;
  if (std::filesystem::is_directory(word, none)) {
    for (const ModelInput &input : inputs) {
      const std::string path = (std::filesystem::path(word) / (input.name + ".npy")).string();
      if (std::filesystem::exists(path, none)) files[input.name] = path;
    }
    if (files.empty())
      throw Failure(fmt::format("{}: has no file called after an input, as {}.npy is; the model's inputs are {}", word,
                                inputs.front().name, names_of(inputs)));
  } else if (word.ends_with(".safetensors")) {
    const std::vector<std::string> names = safetensors_names(InputFile(word));
    for (const ModelInput &input : inputs)
      if (std::find(names.begin(), names.end(), input.name) != names.end()) files[input.name] = word;
    if (files.empty())
      throw Failure(
          fmt::format("{}: has no tensor called after an input; its tensors are {}; the model's inputs are {}", word,
                      fmt::join(names, ", "), names_of(inputs)));
  } else {
    throw UsageError(fmt::format("{} wants NAME=FILE.npy, a directory or a safetensors file, not '{}'", flag, word));
  }
  return files;
}

constexpr std::int64_t kOpen = 0;  // the library chooses the batch

// Returns the size of a dimension, from `flag`, the model, or --dim. If none of them gives the size and `may_stay_open`
// is true, returns kOpen. `data` names what needs the size.
std::int64_t size_of_dim(std::int64_t flag, const char *name, const Dim &dim, const Dims &given, bool may_stay_open,
                         const std::string &data) {
  const auto *fixed = std::get_if<std::int64_t>(&dim);
  if (fixed != nullptr && flag > 0 && flag != *fixed)
    throw UsageError(
        fmt::format("the model's {0} is fixed at {1}, and --{0} is {2}; leave --{0} out, or export the model with a "
                    "symbolic {0} (PyTorch: dynamic_shapes)",
                    name, *fixed, flag));
  if (flag > 0) return flag;
  if (fixed != nullptr) return *fixed;
  const auto bound = given.find(std::get<std::string>(dim));
  if (bound == given.end() && may_stay_open) return kOpen;
  if (bound == given.end()) throw UsageError(fmt::format("{} needs --{} for this model", data, name));
  return bound->second;
}

// The value of the option `shapes` that binds these dims.
std::string shapes_of(const Dims &dims) {
  std::vector<std::string> bindings;
  for (const auto &[name, size] : dims) bindings.push_back(fmt::format("{}={}", name, size));
  return fmt::format("{}", fmt::join(bindings, ","));
}

// Returns the kind of a loss that compares the samples of a batch with each other; "" if no loss does.
std::string comparing_loss(const Options &options) {
  const std::string first = value_of(options, "loss"), others = value_of(options, "also_loss");
  for (const char *kind : {"dpo", "triplet", "infonce"})
    if (first == kind || others.find(fmt::format("loss={}", kind)) != std::string::npos) return kind;
  return "";
}

// Throws UsageError in three cases: the flags would shift labels twice; --labels next would shift an input that the
// loss does not read; or the user has not said whether labels are to be shifted.
void require_one_shift(const DataFlags &flags, const Options &options) {
  const bool shifted = value_of(options, "loss_shift") == "1";
  if (shifted && flags.labels == "next")
    throw UsageError("--labels next and --loss-shift 1 shift the labels twice; give one of them");
  if (flags.labels == "next" && value_of(options, "loss_labels") == "input_ids")
    throw UsageError(
        "--labels next shifts the input labels, and the loss reads input_ids; give --loss-shift 1 instead");
  if (!shifted && !flags.labels && value_of(options, "loss") == "cross_entropy")
    throw UsageError(
        "--tokens with --loss cross_entropy needs to know what a label is: give --loss-shift 1 or --labels next if the "
        "model predicts the following token, or --labels same if it predicts each token itself");
}

template <typename Token>
std::vector<std::byte> bytes_of(const std::vector<std::int64_t> &tokens) {
  const std::vector<Token> narrow(tokens.begin(), tokens.end());
  const auto *bytes = reinterpret_cast<const std::byte *>(narrow.data());
  return {bytes, bytes + narrow.size() * sizeof(Token)};
}

}  // namespace

Batches::Batches(const DataFlags &flags, const ModelData &model, const Options &options, Need need) {
  open(flags, model, options, need);
  if (flags.separator && !windows_->separated())
    throw Failure(fmt::format("--separator {}: no file of --tokens holds this token; give the id that ends a document",
                              *flags.separator));
  const bool has_other_shapes = !value_of(options, "shapes").empty();
  for (const auto &[name, size] : dims_) {
    if (size == kOpen) continue;
    const auto bound = model.bound.find(name);
    if (bound == model.bound.end())
      check(protrain_options_set(options.get(), "dim", fmt::format("{}={}", name, size).c_str()));
    else if (bound->second != size && !has_other_shapes)
      throw UsageError(
          fmt::format("--dim {0}={1} does not fit the data, whose {0} is {2}; leave this --dim out, or change the data",
                      name, bound->second, size));
  }
}

Batches::Batches(const DataFlags &flags, const ModelData &model, const Options &options, const Batches &first) {
  open(flags, model, options, Need::every_input);
  Dims others;
  for (const auto &[name, size] : dims_) {
    const auto bound = model.bound.find(name), before = first.dims_.find(name);
    const bool same =
        bound != model.bound.end() ? bound->second == size : before != first.dims_.end() && before->second == size;
    if (!same) others[name] = size;
  }
  if (!others.empty()) check(protrain_options_set(options.get(), "shapes", shapes_of(others).c_str()));
}

void Batches::open(const DataFlags &flags, const ModelData &model, const Options &options, Need need) {
  if (flags.shuffle) shuffle_.emplace(*flags.shuffle);
  counted_.tokens = model.has_tokens;
  open_arrays(flags, model, options);
  if (const std::string flag = flags.for_tokens(); !flag.empty() && flags.tokens.empty())
    throw UsageError(flag + " needs --tokens FILE");
  counted_.tokens = counted_.tokens || !flags.tokens.empty();
  if (!flags.tokens.empty()) open_tokens(flags, model, options, need);
  const std::vector<ModelInput> lacking = inputs_without_data(model.inputs);
  complete_ = lacking.empty();
  if (!complete_ && arrays_.empty() && !windows_)
    throw UsageError(fmt::format("the model's inputs are {}; give each with {} NAME=FILE.npy, or {} FILE",
                                 names_of(model.inputs), flags.name_of("input"), flags.name_of("tokens")));
  if (complete_ || need == Need::some_input) return;
  const std::string name = lacking.size() == 1 ? lacking.front().name : "NAME";
  throw UsageError(fmt::format("no data for {}: give {}{} {}=FILE.npy, or --constant {}=1 if all elements are 1",
                               names_of(lacking), lacking.size() == 1 ? "" : "each with ", flags.name_of("input"), name,
                               name));
}

std::vector<ModelInput> Batches::inputs_without_data(const std::vector<ModelInput> &inputs) const {
  std::vector<ModelInput> lacking;
  for (const ModelInput &input : inputs) {
    const bool has_array = std::ranges::any_of(arrays_, [&](const ArrayInput &a) { return a.input() == input.name; });
    const bool has_tokens =
        std::ranges::any_of(token_inputs_, [&](const TokenInput &t) { return t.input.name == input.name; });
    if (!has_array && !has_tokens) lacking.push_back(input);
  }
  return lacking;
}

void Batches::open_arrays(const DataFlags &flags, const ModelData &model, const Options &options) {
  for (const std::string &word : flags.arrays) {
    if (const std::size_t equals = word.find('='); equals != std::string::npos) {
      open_array(find_input(model.inputs, word.substr(0, equals)), word.substr(equals + 1), flags, model, options);
      continue;
    }
    const std::map<std::string, std::string> files = files_of_inputs(flags.name_of("input"), word, model.inputs);
    for (const ModelInput &input : model.inputs)
      if (const auto file = files.find(input.name); file != files.end())
        open_array(input, file->second, flags, model, options);
  }
  require_same_rows();
}

void Batches::require_new(const std::string &input) const {
  for (const ArrayInput &array : arrays_)
    if (array.input() == input)
      throw UsageError(fmt::format("input {} is given twice; one source is {}", input, array.path()));
}

void Batches::open_array(const ModelInput &input, const std::string &path, const DataFlags &flags,
                         const ModelData &model, const Options &options) {
  require_new(input.name);
  const auto axes = input.dims ? std::optional(input.dims->size()) : std::nullopt;
  const ArrayInput &array = arrays_.emplace_back(input.name, axes, input.dtype, ArrayFile(path, input.name));
  if (array.of_samples())
    batch_ = size_of_dim(flags.batch, "batch", input.dims->front(), model.bound,
                         !value_of(options, "tokens_per_step").empty(), fmt::format("an array of samples ({})", path));
  if (const std::string misfit = bind(input, array.shape(batch_), dims_); !misfit.empty())
    throw Failure(fmt::format("{}: {}; {}", array.reading(), misfit, forms_of(input)));
  if (input.name == model.batch_input) counted_.input = input.name;
}

// Throws if the arrays do not all have the same length of axis 0, or if axis 0 counts samples in one array and batches
// in another. Every array starts again when it ends. So if there were fewer labels than samples, the labels would start
// again earlier, and would then belong to other samples. Leaves out arrays of a single batch, which serve every batch.
void Batches::require_same_rows() const {
  const ArrayInput *first = nullptr;
  for (const ArrayInput &array : arrays_) {
    if (array.rows() == 1 && !array.of_samples()) continue;  // used in every batch
    if (first == nullptr) first = &array;
    if (array.of_samples() != first->of_samples())
      throw Failure(fmt::format("axis 0 of {} counts samples, and that of {} batches; both must count the same",
                                (array.of_samples() ? array : *first).path(),
                                (array.of_samples() ? *first : array).path()));
    if (array.rows() != first->rows())
      throw Failure(fmt::format("{} has {} {}, and {} has {}; all arrays need as many{}", array.path(), array.rows(),
                                array.of_samples() ? "samples" : "batches", first->path(), first->rows(),
                                array.of_samples() ? "" : ", or 1, which serves every batch"));
  }
}

void Batches::require_together(const Options &options) const {
  const std::string loss = comparing_loss(options);
  const std::uint64_t rows = rows_of_samples();
  if (loss.empty() || rows == 0) return;
  if (shuffle_)
    throw UsageError(
        fmt::format("--shuffle would part samples that the loss {} compares with each other; give arrays of batches, "
                    "whose order it changes as a whole",
                    loss));
  if (batch_ != kOpen && rows % static_cast<std::uint64_t>(batch_) != 0)
    throw Failure(
        fmt::format("the arrays have {} samples, no multiple of the {} of a batch, so a batch would take samples of "
                    "two passes, which the loss {} would compare with each other; give another --batch",
                    rows, batch_, loss));
}

void Batches::open_tokens(const DataFlags &flags, const ModelData &model, const Options &options, Need need) {
  const bool batch_may_stay_open = !value_of(options, "tokens_per_step").empty();
  const std::string labels = value_of(options, "loss_labels");
  const ModelInput &ids = find_input(model.inputs, "input_ids");
  require_one_shift(flags, options);
  if (!ids.dims || ids.dims->size() != 2) throw Failure("--tokens needs a model whose input_ids are (batch, sequence)");
  batch_ = size_of_dim(flags.batch, "batch", (*ids.dims)[0], model.bound, batch_may_stay_open, "--tokens");
  sequence_ = size_of_dim(flags.sequence, "sequence", (*ids.dims)[1], model.bound, false, "--tokens");
  windows_.emplace(flags.tokens, flags.token_type, sequence_, flags.labels == "next", flags.separator);
  token_inputs_ = {{ids, &WindowRows::ids}};
  const bool has_labels = std::ranges::find(model.inputs, labels, &ModelInput::name) != model.inputs.end();
  if (labels != ids.name && (has_labels || need == Need::every_input))
    token_inputs_.push_back({find_input(model.inputs, labels), &WindowRows::labels});
  if (flags.separator)
    token_inputs_.push_back({find_input(model.inputs, value_of(options, "packed")), &WindowRows::positions});
  for (const TokenInput &fed : token_inputs_) require_new(fed.input.name);
  for (const TokenInput &fed : token_inputs_)
    if (const std::string misfit = bind(fed.input, {batch_, sequence_}, dims_); !misfit.empty())
      throw Failure(fmt::format("{}, read as batches of {} for input {} {}: {}", windows_->file(0).path(),
                                tuple_text({batch_, sequence_}), fed.input.name, dims_text(*fed.input.dims), misfit));
  for (const ArrayInput &array : arrays_)
    if (array.rows() > 1 || array.of_samples()) require_rows_of_windows(array, flags);
}

void Batches::require_rows_of_windows(const ArrayInput &array, const DataFlags &flags) const {
  const std::string tokens = flags.name_of("tokens");
  if (windows_->weighted())
    throw UsageError(
        fmt::format("{} with weights takes its files in turns, so the rows of {} would belong to other windows; give "
                    "no weights, or an array of 1 batch, which serves every batch",
                    tokens, array.path()));
  if (flags.separator)
    throw UsageError(
        fmt::format("--separator packs documents into windows, so the rows of {} would belong to other windows; leave "
                    "it out, or give an array of 1 batch, which serves every batch",
                    array.path()));
  if (shuffle_ && !array.of_samples())
    throw UsageError(
        fmt::format("--shuffle takes windows one by one, and the rows of {} as whole batches, so they would belong to "
                    "other windows; give an array of samples, or of 1 batch, which serves every batch",
                    array.path()));
  const auto in_row = static_cast<std::uint64_t>(array.of_samples() ? 1 : batch_);
  if (in_row == 0 || windows_->count() % in_row != 0 || windows_->count() / in_row != array.rows())
    throw Failure(fmt::format(
        "{} has {} {}, and {} has {} windows, {} in a batch; give a sample for each window, or 1 batch, "
        "which serves every batch",
        array.path(), array.rows(), array.of_samples() ? "samples" : "batches", tokens, windows_->count(), batch_));
}

double Batches::tokens_per_batch() const {
  if (windows_) return static_cast<double>(batch_) * static_cast<double>(sequence_) * windows_->filled();
  double count = 0;
  for (const ArrayInput &array : arrays_) {
    if (array.input() != counted_.input) continue;
    const std::vector<std::int64_t> shape = array.shape(batch_);
    count = shape.empty() ? 1 : static_cast<double>(shape.front());
    for (std::size_t i = 1; counted_.tokens && i < shape.size(); ++i) count *= static_cast<double>(shape[i]);
  }
  return count;
}

std::string Batches::bind(const ModelInput &input, const std::vector<std::int64_t> &shape, Dims &dims) {
  if (!input.dims) return "";
  if (shape.size() != input.dims->size())
    return fmt::format("a batch has {} {}, and the input {}", shape.size(), shape.size() == 1 ? "axis" : "axes",
                       input.dims->size());
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const auto &dim = (*input.dims)[i];
    const auto *name = std::get_if<std::string>(&dim);
    if (name == nullptr) {
      if (shape[i] == std::get<std::int64_t>(dim)) continue;
      return fmt::format("axis {} of a batch is {}, and the model fixes it at {}", i, shape[i],
                         std::get<std::int64_t>(dim));
    }
    if (name->empty()) continue;
    const auto [bound, fresh] = dims.emplace(*name, shape[i]);
    if (!fresh && bound->second != shape[i])
      return fmt::format("{} is {} here and {} elsewhere", *name, shape[i], bound->second);
  }
  return "";
}

std::optional<Dims> Batches::dims_with(std::int64_t samples, const ModelData &model) const {
  Dims dims;
  for (const ArrayInput &array : arrays_)
    if (!bind(find_input(model.inputs, array.input()), array.shape(samples), dims).empty()) return std::nullopt;
  for (const TokenInput &fed : token_inputs_)
    if (!bind(fed.input, {samples, sequence_}, dims).empty()) return std::nullopt;
  return dims;
}

void Batches::take_rest(const ModelData &model, const Options &options) {
  require_epochs();
  if (batch_ == kOpen || rows_of_batches() > 1) return;
  const auto rest = static_cast<std::int64_t>(samples() % static_cast<std::uint64_t>(batch_));
  if (rest == 0) return;
  const std::optional<Dims> dims = dims_with(rest, model);
  if (!dims || *dims == dims_ || !can_train(options, model.path, *dims)) return;
  check(protrain_options_set(options.get(), "shapes", shapes_of(*dims).c_str()));
  rest_ = rest;
}

void Batches::settle(protrain_session *session) {
  const auto array = std::find_if(arrays_.begin(), arrays_.end(), [](const ArrayInput &a) { return a.of_samples(); });
  if ((!windows_ && array == arrays_.end()) || batch_ != kOpen) return;
  const std::string sized = windows_ ? "input_ids" : array->input();
  std::size_t count = 0;
  check(protrain_session_input_count(session, &count));
  for (std::size_t i = 0; i < count; ++i) {
    const char *name = nullptr;
    check(protrain_session_input_name(session, i, &name));
    if (name != sized) continue;
    std::size_t rank = 0;
    check(protrain_session_input_shape(session, i, nullptr, 0, &rank));
    std::vector<std::int64_t> dims(rank);
    check(protrain_session_input_shape(session, i, dims.data(), dims.size(), &rank));
    batch_ = dims.front();
  }
}

std::uint64_t Batches::rows_of_samples() const {
  std::uint64_t most = 0;
  for (const ArrayInput &array : arrays_)
    if (array.of_samples()) most = std::max(most, array.rows());
  return most;
}

std::uint64_t Batches::rows_of_batches() const {
  std::uint64_t most = 0;
  for (const ArrayInput &array : arrays_)
    if (!array.of_samples()) most = std::max(most, array.rows());
  return most;
}

void Batches::require_epochs() const {
  if (windows_ && windows_->weighted())
    throw UsageError(
        "files of --tokens with weights have no common epoch; say how many steps or batches, or no weights");
}

std::uint64_t Batches::samples() const {
  require_epochs();
  return std::max(windows_ ? windows_->count() : 0, rows_of_samples());
}

std::uint64_t Batches::count() const {
  const std::uint64_t all = samples(), whole = all == 0 ? 0 : all / static_cast<std::uint64_t>(batch_);
  return std::max({std::uint64_t{1}, whole + (rest_ > 0 ? 1 : 0), rows_of_batches()});
}

std::int64_t Batches::samples_in(std::uint64_t batch) const {
  return rest_ > 0 && batch + 1 == count() ? rest_ : batch_;
}

double Batches::weight(std::uint64_t batch) const {
  return batch_ == 0 ? 1 : static_cast<double>(samples_in(batch)) / static_cast<double>(batch_);
}

std::string Batches::samples_text(std::int64_t number) const {
  return fmt::format("{} {}{}", number, windows_ ? "window" : "sample", number == 1 ? "" : "s");
}

std::string Batches::left_out() const {
  const auto all = static_cast<std::int64_t>(samples());
  if (all == 0 || all % batch_ == 0 || rest_ > 0) return "";
  const std::int64_t rest = all % batch_;
  if (all < batch_)
    throw Failure(
        fmt::format("a batch takes {}, the data hold {}, and the session serves no batch of {}; give more data",
                    samples_text(batch_), all, rest));
  return fmt::format("{} of {} left out: {} is no multiple of {}, and the session serves no batch of {}", rest,
                     samples_text(all), all, batch_, rest);
}

std::uint64_t Batches::steps_of(std::uint64_t epochs, std::uint64_t batches) const {
  const auto steps = [&](std::uint64_t all, std::uint64_t in_step) {
    std::uint64_t rows = 0;
    if (__builtin_mul_overflow(epochs, all, &rows)) rows = std::numeric_limits<std::uint64_t>::max();  // never ends
    return rows / in_step + (rows % in_step != 0 ? 1 : 0);
  };
  const std::uint64_t all = samples();
  return std::max(all == 0 ? 0 : steps(all, batches * static_cast<std::uint64_t>(batch_)),
                  steps(rows_of_batches(), batches));
}

void Batches::feed(protrain_session *session, std::uint64_t batch, std::optional<std::uint64_t> next) {
  present_ = ahead_.take(batch, next);
  for (const auto &[input, dtype, shape, bytes] : present_.values)
    // Throws Failure and not LibraryFailure, because the other ranks do not learn of this error (rank.h).
    check<Failure>(protrain_session_set_input(session, input.c_str(), dtype, shape.data(), shape.size(), bytes.data(),
                                              bytes.size()));
}

BatchData Batches::read(std::uint64_t batch) {
  BatchData data;
  for (const ArrayInput &array : arrays_) {
    const std::uint64_t first = array.of_samples() ? batch * static_cast<std::uint64_t>(batch_) : batch;
    data.values.push_back(array.read(first, samples_in(batch), shuffle_));
  }
  if (windows_) read_tokens(batch, data);
  return data;
}

void Batches::read_tokens(std::uint64_t batch, BatchData &data) {
  const std::uint64_t first = batch * static_cast<std::uint64_t>(batch_);
  const std::int64_t count = samples_in(batch);
  WindowRows rows;
  for (std::uint64_t row = 0; row < static_cast<std::uint64_t>(count); ++row) {
    const auto before = static_cast<std::ptrdiff_t>(rows.ids.size());
    const std::size_t file = windows_->read(first + row, shuffle_, rows);
    const std::int64_t largest = std::max(*std::max_element(rows.ids.begin() + before, rows.ids.end()),
                                          *std::max_element(rows.labels.begin() + before, rows.labels.end()));
    if (largest <= data.largest_token) continue;
    data.largest_token = largest;
    data.largest_from = file;
  }
  for (const auto &[input, member] : token_inputs_) {
    const std::vector<std::int64_t> &tokens = rows.*member;
    const bool narrow = input.dtype == "int32";
    data.values.push_back({input.name,
                           narrow ? PROTRAIN_INT32 : PROTRAIN_INT64,
                           {count, sequence_},
                           narrow ? bytes_of<std::int32_t>(tokens) : bytes_of<std::int64_t>(tokens)});
  }
}

std::string Batches::suspicion(const protrain_error *error) const {
  const std::string subject = protrain_error_subject(error);
  const bool of_array = std::ranges::any_of(arrays_, [&](const ArrayInput &array) { return array.input() == subject; });
  if (protrain_error_code(error) != PROTRAIN_ERROR_ARG || !windows_ || of_array) return "";
  return fmt::format(
      "; {} was read as {}, and the largest token id of this batch is {}: the model's vocabulary may be "
      "smaller than the file's, which then is of another tokenizer, or --token-type is wrong",
      windows_->file(present_.largest_from).path(), windows_->file(present_.largest_from).type(),
      present_.largest_token);
}

std::string Batches::packing() const {
  if (!windows_ || windows_->documents() == 0) return "";
  return fmt::format("{} documents in {} windows, {:.1f}% of them filled", windows_->documents(), windows_->count(),
                     100 * windows_->filled());
}

}  // namespace tool
