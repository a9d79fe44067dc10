// protrain eval: computes the mean loss over data, and writes outputs of the model to files.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "array_layout.h"
#include "batches.h"
#include "checkpoints.h"
#include "commands.h"
#include "npy_writer.h"
#include "outputs.h"
#include "profiling_line.h"
#include "rank.h"
#include "session_flags.h"
#include "stop_signal.h"
#include "tell.h"

namespace tool {

namespace {

struct EvalFlags {
  std::string model;
  std::vector<std::string> outputs;  // NAME=FILE.npy
  std::uint64_t batches = 0;         // 0: one pass over the data
  DataFlags data;
  SessionFlags session;
};

// The amount of data that is evaluated.
struct Amount {
  std::uint64_t batches = 0;
  std::int64_t batch = 0;    // samples in a whole batch; 0: the data are arrays of batches
  std::int64_t samples = 0;  // in all batches
};

// An output of the model and the file that it goes to. If the size of the output's axis 0 is the number of samples in a
// whole batch, the file has a row for each sample. Otherwise axis 0 of the file counts batches.
class Written {
 public:
  Written(protrain_session *session, std::size_t index, const std::string &path, const Amount &amount) : index_(index) {
    const char *name = nullptr;
    check(protrain_session_output_name(session, index, &name));
    name_ = name;
    check(protrain_session_output_dtype(session, index, &dtype_));
    std::vector<std::int64_t> shape = shape_in(session);
    if (dtype_ == PROTRAIN_BFLOAT16) dtype_ = PROTRAIN_FLOAT32;  // NumPy has no bfloat16
    std::size_t bytes = element_bytes(static_cast<protrain_dtype>(dtype_));
    for (const std::int64_t dim : shape) bytes *= static_cast<std::size_t>(dim);
    slice_.resize(bytes);
    samples_ = amount.samples;
    of_samples_ = amount.batch > 0 && !shape.empty() && shape.front() == amount.batch;
    if (of_samples_) {
      row_bytes_ = bytes / static_cast<std::size_t>(amount.batch);
      shape.front() = amount.samples;
    } else {
      const bool may_shrink =
          std::ranges::any_of(shape, [&](std::int64_t dim) { return amount.batch > 0 && dim % amount.batch == 0; });
      if (may_shrink && amount.samples % amount.batch != 0) throw UsageError(without_rows(amount.samples));
      shape.insert(shape.begin(), static_cast<std::int64_t>(amount.batches));
    }
    file_ = std::make_unique<NpyWriter>(path, static_cast<protrain_dtype>(dtype_), shape);
  }

  // `samples` is the number of samples in the batch.
  void write(protrain_session *session, std::int64_t samples) {
    // In a whole batch, the size of the output's axis 0 was the number of samples. If the two numbers differ in this
    // smaller batch, axis 0 does not count samples: the numbers were equal by chance.
    if (of_samples_ && shape_in(session).front() != samples) throw UsageError(without_rows(samples_));
    if (of_samples_) slice_.resize(static_cast<std::size_t>(samples) * row_bytes_);
    check(protrain_session_output_read(session, name_.c_str(), dtype_, slice_.data(), slice_.size()));
    file_->append(slice_);
  }
  void finish() { file_->finish(); }
  bool of_samples() const { return of_samples_; }
  const std::string &name() const { return name_; }

 private:
  // Returns the output's shape in the last prediction.
  std::vector<std::int64_t> shape_in(protrain_session *session) const {
    std::size_t rank = 0;
    check(protrain_session_output_shape(session, index_, nullptr, 0, &rank));
    std::vector<std::int64_t> shape(rank);
    check(protrain_session_output_shape(session, index_, shape.data(), rank, &rank));
    return shape;
  }
  std::string without_rows(std::int64_t samples) const {
    return fmt::format(
        "output {} has no row for each sample, so its file takes batches of one size; give a --batch "
        "that divides {}",
        name_, samples);
  }

  std::size_t index_;
  std::string name_;
  std::int32_t dtype_ = 0;
  std::int64_t samples_ = 0;  // in all batches
  bool of_samples_ = false;
  std::size_t row_bytes_ = 0;  // of a sample
  std::vector<std::byte> slice_;
  std::unique_ptr<NpyWriter> file_;
};

// Splits the values of --output, and has the session keep the named outputs. Returns the outputs' files. The keys are
// the outputs' names.
std::map<std::string, std::string> keep(const std::vector<std::string> &pairs, const Options &options) {
  std::map<std::string, std::string> files;
  for (const std::string &pair : pairs) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos) throw UsageError(fmt::format("--output wants NAME=FILE.npy, not '{}'", pair));
    const std::string name = pair.substr(0, equals);
    if (!files.emplace(name, pair.substr(equals + 1)).second)
      throw UsageError(fmt::format("output {} is given twice", name));
    check(protrain_options_set(options.get(), "keep_outputs", name.c_str()));
  }
  return files;
}

// Returns false if the model has no loss. The library creates no session without a loss, so in this case the function
// sets the options to the mean of an output as the loss: of one that is written to a file if possible, so that the
// session has what this output needs. Returns true for all other models, even if something else is wrong.
bool has_loss(const Options &options, const std::string &model, const std::map<std::string, std::string> &files) {
  if (!value_of(options, "loss").empty() || is_accepted(options, model)) return true;
  std::vector<std::string> candidates;
  for (const auto &[name, file] : files) candidates.push_back(name);
  candidates.emplace_back();  // any output
  for (const std::string &name : candidates) {
    const Options trial = copy_of(options, [](const std::string &, const std::string &) { return true; });
    const auto set_loss = [&](const Options &all) {
      check(protrain_options_set(all.get(), "loss", "mean"));
      if (!name.empty()) check(protrain_options_set(all.get(), "loss_output", name.c_str()));
    };
    set_loss(trial);
    if (!is_accepted(trial, model)) continue;
    set_loss(options);
    return false;
  }
  return true;
}

std::vector<Written> open_outputs(protrain_session *session, const std::map<std::string, std::string> &files,
                                  const Amount &amount) {
  std::vector<Written> written;
  std::size_t count = 0;
  check(protrain_session_output_count(session, &count));
  for (std::size_t i = 0; i < count; ++i) {
    const char *name = nullptr;
    check(protrain_session_output_name(session, i, &name));
    if (const auto file = files.find(name); file != files.end()) written.emplace_back(session, i, file->second, amount);
  }
  for (const auto &[name, file] : files)
    if (std::ranges::find(written, name, &Written::name) == written.end())
      throw Failure(fmt::format("--output {}={}: the model has no output of this name", name, file));
  return written;
}

std::string batches_text(std::uint64_t count) { return fmt::format("{} batch{}", count, count == 1 ? "" : "es"); }

// Checks, before any batch is computed, that the files can be written to their places.
void require_files(const std::map<std::string, std::string> &files, const EvalFlags &flags, const ModelData &model,
                   const Options &options) {
  std::vector<Input> inputs = model_files(flags.model, model.files, options);
  for (const std::vector<Input> &data :
       {array_files("--input", flags.data.arrays, model), token_files("--tokens", flags.data.tokens)})
    inputs.insert(inputs.end(), data.begin(), data.end());
  std::vector<Output> outputs;
  for (const auto &[name, file] : files)
    outputs.push_back({.kind = Output::Kind::file, .flag = "--output " + name, .path = file});
  require_writable(outputs, inputs);
}

// Computes the loss of batch `batch`. If no label of the batch counts, prints a warning and returns an empty optional.
// If the loss is not finite for another reason, throws a Failure that names the batch.
std::optional<float> evaluate(protrain_session *session, const Batches &batches, std::uint64_t batch,
                              std::uint64_t count) {
  float loss = 0;
  const std::unique_ptr<protrain_error, Destroy> error(protrain_eval(session, &loss));
  if (!error) return loss;
  const LibraryFailure failure(error.get(), batches.suspicion(error.get()));
  if (failure.code != PROTRAIN_ERROR_NONFINITE) throw failure;
  if (!failure.counts_nothing()) throw Failure(fmt::format("batch {} of {}: {}", batch + 1, count, failure.what()));
  tell("protrain: warning: batch {} of {} is left out: {}\n", batch + 1, count, failure.what());
  return std::nullopt;
}

// The mean loss, and the number of batches over which the mean was taken.
struct Mean {
  double loss = 0;
  std::uint64_t batches = 0;
};

// Runs the session on all batches, and writes the outputs. Returns the mean of the batches' losses if `evaluates`, else
// a Mean of 0 batches. Returns an empty optional if a signal ended the work.
std::optional<Mean> compute(protrain_session *session, Batches &batches, std::uint64_t count, bool evaluates,
                            std::vector<Written> &outputs) {
  Mean mean;
  double weights = 0;
  for (std::uint64_t batch = 0; batch < count; ++batch) {
    if (stop_signal() != 0) {
      fmt::print("stopped after {} of {} batches\n", batch, count);
      return std::nullopt;
    }
    batches.feed(session, batch, batch + 1);
    if (evaluates)
      if (const std::optional<float> loss = evaluate(session, batches, batch, count)) {
        mean.loss += batches.weight(batch) * static_cast<double>(*loss);
        weights += batches.weight(batch);
        ++mean.batches;
      }
    if (!outputs.empty()) check(protrain_predict(session));
    for (Written &output : outputs) output.write(session, batches.samples_in(batch));
  }
  for (Written &output : outputs) output.finish();
  mean.loss /= weights;
  return mean;
}

int eval(const EvalFlags &flags) {
  const Options options = flags.session.make_options();
  take_best(options);
  check(protrain_options_set(options.get(), "mode", "eval"));
  const std::map<std::string, std::string> files = keep(flags.outputs, options);
  const bool judged = files.empty() || has_loss(options, flags.model, files);
  const ModelData model = data_of(options, flags.model, flags.data);
  const Batches::Need need = files.empty() ? Batches::Need::every_input : Batches::Need::some_input;
  Batches batches(flags.data, model, options, need);
  const bool whole = flags.batches == 0;
  if (whole) batches.take_rest(model, options);
  require_files(files, flags, model, options);
  const Session session = [&] {
    const ProfilingLine line(options);
    return create_session(options, flags.model);
  }();
  if (!rank_of(session.get()).alone()) throw Failure("eval does not run on several ranks; start it alone");
  batches.settle(session.get());
  if (const std::string left_out = whole ? batches.left_out() : ""; !left_out.empty())
    tell("protrain: warning: {}\n", left_out);
  Amount amount{.batches = whole ? batches.count() : flags.batches, .batch = batches.batch()};
  for (std::uint64_t batch = 0; batch < amount.batches; ++batch) amount.samples += batches.samples_in(batch);
  note_stop_signals();
  std::vector<Written> outputs = open_outputs(session.get(), files, amount);
  const bool evaluates = judged && batches.complete();
  const std::optional<Mean> mean = compute(session.get(), batches, amount.batches, evaluates, outputs);
  if (!mean) return 128 + stop_signal();
  const std::int64_t last = batches.samples_in(amount.batches - 1);
  if (mean->batches > 0)
    fmt::print("loss {:.6g}, the mean of {}{}{}\n", mean->loss, batches_text(mean->batches),
               last < amount.batch ? fmt::format(", the last of {}", batches.samples_text(last)) : "",
               model.loss_is_cross_entropy ? fmt::format("; perplexity {:.6g}", std::exp(mean->loss)) : "");
  for (const Written &output : outputs)
    fmt::print("{}: {} of {}\n", files.at(output.name()), output.name(),
               output.of_samples() ? batches.samples_text(amount.samples) : batches_text(amount.batches));
  if (evaluates && mean->batches == 0) throw Failure("no label of these data counts, so there is no loss");
  return kOk;
}

}  // namespace

void add_eval(CLI::App &app, int &status) {
  CLI::App *command = app.add_subcommand("eval", "compute the loss of data, and write outputs of the model to files");
  auto flags = std::make_shared<EvalFlags>();
  command->add_option("MODEL", flags->model, "an ONNX file")->required();
  flags->data.add_to(*command);
  command->add_option(
      "--output", flags->outputs,
      "NAME=FILE.npy, an output of the graph, once for each; axis 0 of the file counts samples or windows, or "
      "batches if the data or the output do not count samples. With outputs, inputs that these do not depend on, such "
      "as labels, may be left out, and so may --loss");
  command->add_option("--batches", flags->batches, "number of batches; else one pass over the data")
      ->check(positive_number());
  flags->session.add_to(*command);
  command->callback([flags, &status] { status = eval(*flags); });
}

}  // namespace tool
