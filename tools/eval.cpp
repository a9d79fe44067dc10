// protrain eval: computes the mean loss over data, and writes outputs of the model to files.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "array_layout.h"
#include "batches.h"
#include "commands.h"
#include "npy_writer.h"
#include "profiling_line.h"
#include "rank.h"
#include "session_flags.h"

namespace tool {

namespace {

struct EvalFlags {
  std::string model;
  std::vector<std::string> outputs;  // NAME=FILE.npy
  std::uint64_t batches = 0;         // 0: one pass over the data
  DataFlags data;
  SessionFlags session;
};

// An output of the model and the file that it goes to.
class Written {
 public:
  Written(protrain_session *session, std::size_t index, const std::string &path, std::uint64_t batches) {
    const char *name = nullptr;
    std::size_t rank = 0;
    check(protrain_session_output_name(session, index, &name));
    name_ = name;
    check(protrain_session_output_dtype(session, index, &dtype_));
    check(protrain_session_output_shape(session, index, nullptr, 0, &rank));
    std::vector<std::int64_t> shape(rank);
    check(protrain_session_output_shape(session, index, shape.data(), rank, &rank));
    if (dtype_ == PROTRAIN_BFLOAT16) dtype_ = PROTRAIN_FLOAT32;  // NumPy has no bfloat16
    std::size_t bytes = element_bytes(static_cast<protrain_dtype>(dtype_));
    for (const std::int64_t dim : shape) bytes *= static_cast<std::size_t>(dim);
    slice_.resize(bytes);
    shape.insert(shape.begin(), static_cast<std::int64_t>(batches));
    file_ = std::make_unique<NpyWriter>(path, static_cast<protrain_dtype>(dtype_), shape);
  }

  void write(protrain_session *session) {
    check(protrain_session_output_read(session, name_.c_str(), dtype_, slice_.data(), slice_.size()));
    file_->append(slice_);
  }
  void finish() { file_->finish(); }

 private:
  std::string name_;
  std::int32_t dtype_ = 0;
  std::vector<std::byte> slice_;
  std::unique_ptr<NpyWriter> file_;
};

// Splits the flags --output, and has the session keep these outputs. Returns their files by name.
std::map<std::string, std::string> keep(const std::vector<std::string> &pairs, const Options &options) {
  std::map<std::string, std::string> files;
  for (const std::string &pair : pairs) {
    const std::size_t equals = pair.rfind('=');
    if (equals == std::string::npos) throw UsageError(fmt::format("--output wants NAME=FILE.npy, not '{}'", pair));
    const std::string name = pair.substr(0, equals);
    if (!files.emplace(name, pair.substr(equals + 1)).second)
      throw UsageError(fmt::format("output {} is given twice", name));
    check(protrain_options_set(options.get(), "keep_outputs", name.c_str()));
  }
  return files;
}

std::vector<Written> open_outputs(protrain_session *session, const std::map<std::string, std::string> &files,
                                  std::uint64_t batches) {
  std::vector<Written> written;
  std::size_t count = 0;
  check(protrain_session_output_count(session, &count));
  for (std::size_t i = 0; i < count; ++i) {
    const char *name = nullptr;
    check(protrain_session_output_name(session, i, &name));
    if (const auto file = files.find(name); file != files.end())
      written.emplace_back(session, i, file->second, batches);
  }
  return written;
}

int eval(const EvalFlags &flags) {
  const Options options = flags.session.make_options();
  const std::map<std::string, std::string> files = keep(flags.outputs, options);
  Batches batches(flags.data, data_of(options, flags.model, flags.data), options, !files.empty());
  if (flags.batches == 0) batches.require_epochs();
  const Session session = [&] {
    const ProfilingLine line(options);
    return create_session(options, flags.model);
  }();
  if (!rank_of(session.get()).alone()) throw Failure("eval does not run on several ranks; start it alone");
  batches.settle(session.get());
  const std::uint64_t count = flags.batches > 0 ? flags.batches : batches.count();
  std::vector<Written> outputs = open_outputs(session.get(), files, count);
  double sum = 0;
  for (std::uint64_t batch = 0; batch < count; ++batch) {
    batches.feed(session.get(), batch, batch + 1);
    float loss = 0;
    if (batches.complete()) check(protrain_eval(session.get(), &loss));
    sum += static_cast<double>(loss);
    if (!outputs.empty()) check(protrain_predict(session.get()));
    for (Written &output : outputs) output.write(session.get());
  }
  for (Written &output : outputs) output.finish();
  if (batches.complete())
    fmt::print("loss {:.6g}, the mean of {} batch{}\n", sum / static_cast<double>(count), count,
               count == 1 ? "" : "es");
  for (const auto &[name, file] : files)
    fmt::print("{}: {} of {} batch{}\n", file, name, count, count == 1 ? "" : "es");
  return kOk;
}

}  // namespace

void add_eval(CLI::App &app, int &status) {
  CLI::App *command = app.add_subcommand("eval", "compute the loss of data, and write outputs of the model to files");
  auto flags = std::make_shared<EvalFlags>();
  command->add_option("MODEL", flags->model, "an ONNX file")->required();
  flags->data.add_to(*command);
  command->add_option("--output", flags->outputs,
                      "NAME=FILE.npy, an output of the graph, once for each; axis 0 of the file counts batches. With "
                      "outputs, inputs that these do not depend on, such as labels, may be left out");
  command->add_option("--batches", flags->batches, "number of batches; else one pass over the data")
      ->check(positive_number());
  flags->session.add_to(*command);
  command->callback([flags, &status] { status = eval(*flags); });
}

}  // namespace tool
