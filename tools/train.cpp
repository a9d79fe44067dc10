// protrain train: feeds batches, steps, reports progress, and writes the results asked for.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "batches.h"
#include "checkpoints.h"
#include "clock.h"
#include "commands.h"
#include "evaluation.h"
#include "metrics.h"
#include "outputs.h"
#include "profiling_line.h"
#include "progress.h"
#include "rank.h"
#include "report.h"
#include "session_flags.h"
#include "stop_signal.h"
#include "svg.h"
#include "tell.h"

namespace tool {

namespace {

using Json = nlohmann::ordered_json;

struct TrainFlags {
  std::string model, metrics, export_path, adapter_path, report;
  std::optional<std::uint64_t> steps;  // 0: only writes what the session begins with
  std::uint64_t until = 0;             // in place of steps: the last step, over all runs; 0: not given
  std::uint64_t epochs = 0;            // in place of steps; 0: not given
  CheckpointFlags save;
  EvaluationFlags evaluation;
  DataFlags data;
  SessionFlags session;
};

void warn(const std::string &text) { tell("protrain: warning: {}\n", text); }

// Warns of values that may or may not be parameters, and of declared parameters that the file lacks.
void warn_of_doubts(const Json &doubtful) {
  constexpr std::size_t kMostNamed = 3;
  if (doubtful.empty()) return;
  const auto unsure = doubtful["count"].get<std::size_t>();
  std::vector<std::string> found;
  if (unsure > 0) found.push_back(fmt::format("{} values may or may not be parameters", unsure));
  if (!doubtful["unmatched"].empty()) found.emplace_back("declared parameters are in no initializer");
  std::vector<std::string> names = doubtful["names"].get<std::vector<std::string>>();
  for (const Json &name : doubtful["unmatched"]) names.push_back(name.get<std::string>());
  const bool more = names.size() > kMostNamed;
  names.resize(std::min(names.size(), kMostNamed));
  warn(fmt::format("{} ({}{}); protrain check says why, and what settles it", fmt::join(found, ", and "),
                   fmt::join(names, ", "), more ? ", ..." : ""));
}

void alarm(const Json &about) { tell("protrain: alarm: {}\n", about.value("text", "")); }

// A log callback that shows the session's warnings and alarms. It keeps the newest step's line in the string `user`.
void hear(const char *line, void *user) {
  const std::string_view text = line;
  if (text.find("\"event\":\"warning\"") != std::string_view::npos) warn(Json::parse(line).value("text", ""));
  if (text.find("\"event\":\"alarm\"") != std::string_view::npos) alarm(Json::parse(line));
  if (text.find("\"event\":\"step\"") != std::string_view::npos) *static_cast<std::string *>(user) = text;
}

// Returns the number of steps that the session has taken, over all runs.
std::uint64_t steps_of(protrain_session *session) {
  std::uint64_t steps = 0;
  check(protrain_session_step_count(session, &steps));
  return steps;
}

// Returns the session's "created" log line.
Json created(protrain_session *session) {
  std::string line;
  check(protrain_session_set_log(
      session, [](const char *text, void *user) { *static_cast<std::string *>(user) = text; }, &line));
  check(protrain_session_set_log(session, nullptr, nullptr));
  return line.empty() ? Json::object() : Json::parse(line);
}

// Prints for people what was created: "240.1 k parameters in 28 tensors; 4.1 MiB on cpu, 2 threads".
void announce(protrain_session *session, RunRecord &record) {
  const Json &about = record.about;
  size_t count = 0, all = 0;
  check(protrain_session_parameter_count(session, &count));
  for (size_t i = 0; i < count; ++i) {
    size_t elements = 0;
    check(protrain_session_parameter_elements(session, i, &elements));
    all += elements;
  }
  check(protrain_session_set_log(session, hear, &record.step_line));
  fmt::print("{}: {} parameters in {} tensors; {:.1f} MiB on {}, {} threads\n", record.model,
             count_text(static_cast<double>(all)), count, about.value("device_peak_bytes", 0.0) / 1048576,
             about.value("device", "?"), about.value("threads", 0));
  if (record.ranks > 1) fmt::print("{} ranks, each with as much\n", record.ranks);
  if (!about.value("loss_from", "").empty()) fmt::print("loss from {}\n", about.value("loss_from", ""));
  if (about.value("micro_batch", 0) > 0)
    fmt::print("micro-batch: {} samples, {} to a step\n", about.value("micro_batch", 0),
               about.value("accumulation", std::uint64_t{1}) * record.ranks);
  if (about.value("n_chunk", 0) > about.value("n_persist", 0) || about.value("n_checkpoint", 0) > 0)
    fmt::print(
        "plan: {} of {} chunks stay in memory, {} of {} blocks compute again, {} what is light, {} swap; {:.3g} s a "
        "step "
        "expected\n",
        about.value("n_persist", 0), about.value("n_chunk", 0), about.value("n_checkpoint", 0),
        about.value("n_block", 0), about.value("n_selective", 0), about.value("n_swap", 0),
        about.value("predicted_seconds", 0.0));
  std::fflush(stdout);
  for (const Json &warning : about.value("warnings", Json::array())) warn(warning.get<std::string>());
  warn_of_doubts(about.value("doubtful", Json::object()));
  for (const Json &known : about.value("alarms", Json::array())) alarm(known);
}

// An error of protrain_step.
struct StepFailure : LibraryFailure {
  using LibraryFailure::LibraryFailure;

  // False if the error's code is one that can come during the updates, when some parameters have taken the step and
  // others have not.
  //   True nevertheless for two such codes, because for them spares_weights() checks more than the code. NONFINITE can
  // come during the updates if these overlap with backward, but in this case the session counts the step. PEER, which
  // reports the failure of another rank, can come at any time, but if the ranks had begun the batch, the session is not
  // usable any more.
  bool came_before_updates() const {
    constexpr protrain_code kBefore[] = {PROTRAIN_ERROR_ARG,      PROTRAIN_ERROR_STATE,     PROTRAIN_ERROR_SHAPE,
                                         PROTRAIN_ERROR_TYPE,     PROTRAIN_ERROR_NONFINITE, PROTRAIN_ERROR_PEER,
                                         PROTRAIN_ERROR_MISMATCH, PROTRAIN_ERROR_CANCELLED};
    return std::ranges::find(kBefore, code) != std::end(kBefore);
  }
};

// Runs one batch of a step. `first` is true for the step's first batch. Returns false if a rank cancels the step in the
// first batch, when nothing has changed yet. Throws StepFailure for any other error. If the library refuses a value,
// the error gets a hint about the token file, because a token may lie beyond the vocabulary.
bool take_batch(protrain_session *session, const Batches &batches, bool first, float *loss) {
  const std::unique_ptr<protrain_error, Destroy> error(protrain_step(session, loss));
  if (!error) return true;
  if (protrain_error_code(error.get()) == PROTRAIN_ERROR_CANCELLED && first) return false;
  throw StepFailure(error.get(), batches.suspicion(error.get()));
}

// Takes step `number`. Returns an empty optional if a rank has cancelled the step. Steps are counted over all runs, so
// that a resumed run goes on with the next batches. The batches of a step are dealt out to the ranks one by one.
std::optional<Step> take_step(protrain_session *session, Batches &batches, std::uint64_t number,
                              std::uint64_t accumulation, const Rank &rank) {
  const double start = seconds_now();
  const std::uint64_t all = accumulation * rank.count;
  Step step{.number = number, .tokens = batches.tokens_per_batch() * static_cast<double>(all)};
  const double waited = batches.waited();
  check(protrain_session_learning_rate(session, &step.learning_rate));
  const std::uint64_t first = (number - 1) * all + rank.number;
  for (std::uint64_t batch = first; batch < number * all; batch += rank.count) {
    batches.feed(session, batch, batch + rank.count);
    if (!take_batch(session, batches, batch == first, &step.loss)) return std::nullopt;
  }
  step.seconds = seconds_now() - start;
  step.data_seconds = batches.waited() - waited;
  return step;
}

// Checks before the run that the results can be written to their places. A run that resumes checks the directory of
// checkpoints once it knows its first step.
void require_places(const TrainFlags &flags, const ModelData &model, const Options &options) {
  const auto require_directory = [](const std::filesystem::path &path) {
    if (access(path.c_str(), W_OK | X_OK) != 0)
      throw Failure(fmt::format("{}: {}", path.string(), std::strerror(errno)));
  };
  if (!flags.save.directory.empty()) {
    if (mkdir(flags.save.directory.c_str(), 0777) != 0 && errno != EEXIST)
      throw Failure(fmt::format("{}: {}", flags.save.directory, std::strerror(errno)));
    require_directory(flags.save.directory + "/.");
    if (value_of(options, "resume").empty()) require_checkpoint_place(flags.save.directory, 0);
  }

  std::vector<Input> inputs = model_files(flags.model, model.files, options);
  for (const std::vector<Input> &data :
       {array_files("--input", flags.data.arrays, model), array_files("--eval-input", flags.evaluation.arrays, model),
        token_files("--tokens", flags.data.tokens), token_files("--eval-tokens", {flags.evaluation.tokens})})
    inputs.insert(inputs.end(), data.begin(), data.end());

  using Kind = Output::Kind;
  const bool one_file = flags.adapter_path.ends_with(".onnx_adapter");
  require_writable({{Kind::model, "--export", flags.export_path},
                    {Kind::stream, "--metrics", flags.metrics},
                    {Kind::stream, "--report", flags.report},
                    {one_file ? Kind::file : Kind::directory, "--save-adapter", flags.adapter_path}},
                   inputs);
  const std::filesystem::path extension = std::filesystem::path(flags.report).extension();
  if (!extension.empty() && extension != ".html" && extension != ".json")
    throw UsageError(fmt::format("--report writes OUT.html or OUT.json, not '{}'", flags.report));
  if (!flags.export_path.empty()) require_mergeable(flags.model, options);
}

// The paths of the results that were written, and the errors of those that were not.
struct Results {
  std::vector<std::string> written;
  std::vector<std::exception_ptr> failures;
};

// Writes all results, even if one of them cannot be written. Rank 0 writes the report alone, before all other results.
// All ranks write the other results together, so no rank ends before the report is written. This matters because a
// launcher may end the job as soon as one rank has ended.
//   If a rank fails after its last step, it cancels, because other ranks may still be in a step (ends_on_all_ranks). If
// this rank has ended its steps too, that cancel hits the first collective call here, which then fails. So this call is
// repeated once.
Results write_results(protrain_session *session, const TrainFlags &flags, Checkpoints &checkpoints, RunRecord &record) {
  Results results;
  bool again = record.ranks > 1;
  const auto attempt = [&](const std::string &path, auto write) {
    if (path.empty()) return;
    try {
      try {
        write();
      } catch (const LibraryFailure &failure) {
        if (failure.code != PROTRAIN_ERROR_STATE || !std::exchange(again, false)) throw;
        write();
      }
      results.written.push_back(path);
    } catch (const std::exception &) {
      results.failures.push_back(std::current_exception());
    }
  };
  attempt(flags.report, [&] {
    record.report = report_of(session);
    record.report["data_seconds"] = record.data_seconds;
    write_text(flags.report, flags.report.ends_with(".json") ? record.report.dump(1) : report_page(record));
  });
  attempt(flags.save.directory, [&] { checkpoints.at_end(session, record.last_step()); });
  attempt(flags.export_path, [&] { check(protrain_session_export(session, flags.export_path.c_str())); });
  attempt(flags.adapter_path, [&] { check(protrain_session_export_adapters(session, flags.adapter_path.c_str())); });
  return results;
}

// Reports an evaluation. If its loss is the lowest so far, saves a checkpoint of the step. Returns true if the run is
// to end, because too many evaluations have passed since the one with the lowest loss.
bool judge(protrain_session *session, const Step &step, const Evaluation &evaluation, Checkpoints &checkpoints,
           std::optional<Progress> &progress) {
  const double loss = *step.eval_loss;
  const bool best = checkpoints.evaluated(session, step.number, loss);
  if (progress)
    progress->say(fmt::format("step {}: evaluation loss {:.6g}{}{}", step.number, loss,
                              step.has_perplexity ? fmt::format(", perplexity {:.6g}", std::exp(loss)) : "",
                              best ? ", the best so far" : ""));
  return !best && checkpoints.best() && evaluation.exhausted(step.number, checkpoints.best()->step);
}

// The training of one of the ranks. Only rank 0 prints, and writes the metrics and the report. In the other ranks,
// `flags` names no file for the metrics or the report.
class Training {
 public:
  Training(protrain_session *session, Batches &batches, std::optional<Evaluation> &evaluation, const TrainFlags &flags,
           const Rank &rank)
      : session_(session),
        batches_(batches),
        evaluation_(evaluation),
        flags_(flags),
        rank_(rank),
        record_{.model = flags.model,
                .ranks = rank.count,
                .before = steps_of(session),
                .keeps_steps = !flags.report.empty() && !flags.report.ends_with(".json"),
                .unit = batches.unit(),
                .about = created(session)},
        checkpoints_(flags.save, record_.before, rank) {}

  // Takes the steps and writes the results. Returns the exit status.
  int run();

 private:
  std::uint64_t accumulation() const { return record_.about.value("accumulation", std::uint64_t{1}); }
  void begin();
  void take_steps();
  void evaluate(Step &step);
  void after(Step &step, std::optional<Progress> &progress);
  bool spares_weights(const std::exception &failure) const;
  bool ends_on_all_ranks(const std::exception &failure);
  int save_after(const std::exception &failure);

  protrain_session *session_;
  Batches &batches_;
  std::optional<Evaluation> &evaluation_;
  const TrainFlags &flags_;
  const Rank rank_;
  RunRecord record_;
  Checkpoints checkpoints_;
  std::optional<Metrics> metrics_;
  std::uint64_t steps_ = 0;  // of this run
  bool stopped_ = false;     // by a signal
  bool exhausted_ = false;   // evaluations have not become better for long enough
};

// Prints what was created, and opens what the steps need. Replaces the metrics file of an earlier run last, so that the
// file stays as it was if this function throws.
void Training::begin() {
  if (rank_.leads()) announce(session_, record_);
  batches_.settle(session_);
  if (rank_.leads() && !batches_.packing().empty()) fmt::print("{}\n", batches_.packing());
  // --until-step and --epochs count over all runs. A resumed run takes only the steps that are still missing.
  const std::uint64_t before = record_.before;
  const std::uint64_t all =
      flags_.epochs > 0 ? batches_.steps_of(flags_.epochs, accumulation() * rank_.count) : flags_.until;
  steps_ = flags_.steps.value_or(all - std::min(all, before));
  note_stop_signals();  // from here on a signal leaves no trial behind
  if (!flags_.adapter_path.empty()) require_adapters_writable(session_, flags_.adapter_path, rank_);
  if (rank_.leads() && before > 0) fmt::print("goes on after step {}\n", before);
  if (rank_.leads() && steps_ == 0) fmt::print("nothing is left to do: the run ends with step {}\n", all);
  metrics_.emplace(flags_.metrics, before);
}

void Training::take_steps() {
  std::optional<Progress> progress;
  if (rank_.leads()) progress.emplace(stdout, record_.before, steps_, batches_.unit(), rank_.count == 1);
  while (record_.steps < steps_ && !exhausted_) {
    stopped_ = ends_by_signal(session_, rank_);
    if (stopped_) return;
    std::optional<Step> step = take_step(session_, batches_, record_.last_step() + 1, accumulation(), rank_);
    stopped_ = !step;
    if (stopped_) return;
    record_.add(step->loss, step->learning_rate, step->seconds, step->tokens);
    record_.data_seconds += step->data_seconds;
    after(*step, progress);
  }
}

// Evaluates the model, unless a signal ends the evaluation.
void Training::evaluate(Step &step) {
  step.eval_loss = evaluation_->run(session_, rank_);
  step.has_perplexity = evaluation_->has_perplexity();
  if (record_.keeps_steps && step.eval_loss) record_.evaluations.push_back({step.number, *step.eval_loss});
}

// Evaluates the model if an evaluation is due, writes the metrics of the step, and saves a checkpoint if one is due.
// The step has its line in the metrics even if its evaluation fails.
void Training::after(Step &step, std::optional<Progress> &progress) {
  const std::uint64_t done = record_.steps;
  if (evaluation_ && (evaluation_->due(step.number) || done == steps_)) try {
      evaluate(step);
    } catch (...) {
      metrics_->write(session_, step, record_.step_line);
      throw;
    }
  metrics_->write(session_, step, record_.step_line);
  if (progress) progress->step(done, step.loss, step.seconds, step.tokens);
  if (step.eval_loss) exhausted_ = judge(session_, step, *evaluation_, checkpoints_, progress);
  checkpoints_.after(session_, step.number);
}

// True if after the error `failure` the session can still write its weights, and these are the weights after the last
// recorded step.
bool Training::spares_weights(const std::exception &failure) const {
  const auto *of_library = dynamic_cast<const LibraryFailure *>(&failure);
  const auto *of_step = dynamic_cast<const StepFailure *>(&failure);
  if (of_library != nullptr && !of_library->usable) return false;
  if (of_step != nullptr && !of_step->came_before_updates()) return false;
  return steps_of(session_) == record_.last_step();
}

// Ends the steps of the other ranks too, after the error `failure` of this rank. Does nothing if the library returned
// the error, because in that case the other ranks know of it. After any other error, this rank cancels a step, which
// then changes nothing. The cancel ends the call in which the other ranks wait for this one, or the next call that they
// make. Returns false if the ranks cannot write the results together afterwards.
bool Training::ends_on_all_ranks(const std::exception &failure) {
  if (rank_.alone() || dynamic_cast<const LibraryFailure *>(&failure) != nullptr) return true;
  protrain_session_cancel(session_);
  float loss = 0;
  const std::unique_ptr<protrain_error, Destroy> error(protrain_step(session_, &loss));
  return error && protrain_error_usable(error.get()) != 0;
}

// Writes the results of the steps before an error. Prints that error first, and then each error of the writing. Returns
// the exit status.
int Training::save_after(const std::exception &failure) {
  say(rank_, failure);
  const Results results = write_results(session_, flags_, checkpoints_, record_);
  if (rank_.leads() && !results.written.empty())
    tell("protrain: saved after step {}: {}\n", record_.last_step(), fmt::join(results.written, ", "));
  for (const std::exception_ptr &other : results.failures) try {
      std::rethrow_exception(other);
    } catch (const LibraryFailure &unsaved) {
      const bool amid = unsaved.code == PROTRAIN_ERROR_STATE;  // a checkpoint holds whole steps
      if (amid && rank_.leads())
        tell("protrain: no checkpoint: the error came amid the batches of a step\n");
      else if (std::string_view(unsaved.what()) != failure.what())
        say(rank_, unsaved);
    } catch (const std::exception &unsaved) {
      if (std::string_view(unsaved.what()) != failure.what()) say(rank_, unsaved);
    }
  return kFailed;
}

int Training::run() {
  begin();
  try {
    take_steps();
  } catch (const std::exception &failure) {
    if (record_.steps == 0 || !spares_weights(failure) || !ends_on_all_ranks(failure)) throw;
    return save_after(failure);
  }

  stopped_ = stopped_ || stop_signal() != 0;
  if (stopped_ && rank_.leads()) fmt::print("stopped after step {}\n", record_.last_step());
  if (exhausted_ && rank_.leads())
    fmt::print("ended after step {}: no evaluation was better than that of step {}\n", record_.last_step(),
               checkpoints_.best()->step);
  const Results results = write_results(session_, flags_, checkpoints_, record_);
  if (rank_.leads() && !results.written.empty())
    fmt::print("wrote the state after step {}: {}\n", record_.last_step(), fmt::join(results.written, ", "));
  if (exhausted_ && rank_.leads() && !flags_.export_path.empty() && !flags_.save.directory.empty())
    fmt::print("to export step {}: --steps 0 --resume {}/best.json --export FILE\n", checkpoints_.best()->step,
               flags_.save.directory);
  if (!results.failures.empty()) std::rethrow_exception(results.failures.front());
  // If a signal stopped the run, returns 128 + the number of the signal. If only other ranks have received the signal,
  // its number is not known here, and the number of SIGINT (Ctrl-C) is taken.
  return !stopped_ ? kOk : 128 + (stop_signal() != 0 ? stop_signal() : SIGINT);
}

// Writes the weights that the session begins with, such as those of a checkpoint. Returns the exit status.
int write_without_steps(protrain_session *session, const TrainFlags &flags, const Rank &rank) {
  RunRecord record{.model = flags.model, .ranks = rank.count, .before = steps_of(session), .about = created(session)};
  if (rank.leads()) announce(session, record);
  Checkpoints checkpoints(flags.save, record.before, rank);
  const Results results = write_results(session, flags, checkpoints, record);
  if (!results.failures.empty()) std::rethrow_exception(results.failures.front());
  if (rank.leads())
    fmt::print("wrote the weights after step {}: {}\n", record.before, fmt::join(results.written, ", "));
  return kOk;
}

void require_sense(const TrainFlags &flags) {
  const bool evaluates = flags.evaluation.asked();
  if (!flags.steps && flags.until == 0 && flags.epochs == 0)
    throw UsageError("--steps is required, or --until-step, or --epochs");
  if (flags.save.every > 0 && flags.save.directory.empty()) throw UsageError("--save-every needs --save DIR");
  if (flags.save.keep > 0 && flags.save.directory.empty()) throw UsageError("--keep needs --save DIR");
  if ((flags.evaluation.every > 0 || flags.evaluation.patience > 0) && !evaluates)
    throw UsageError("--eval-every and --patience need --eval-input NAME=FILE.npy or --eval-tokens FILE");
  if ((flags.evaluation.batch > 0 || flags.evaluation.sequence > 0) && !evaluates)
    throw UsageError("--eval-batch and --eval-sequence need --eval-input NAME=FILE.npy or --eval-tokens FILE");
  if (flags.steps != 0) return;
  if (!flags.save.directory.empty() || !flags.metrics.empty() || !flags.report.empty() || evaluates)
    throw UsageError("--steps 0 takes no step, so there is nothing for --save, --metrics, --report and evaluations");
  if (flags.export_path.empty() && flags.adapter_path.empty())
    throw UsageError("--steps 0 only writes --export OUT.onnx and --save-adapter DIR; give one of them");
}

int train(TrainFlags flags) {
  require_sense(flags);
  const Options options = flags.session.make_options();
  if (value_of(options, "mode") == "eval")
    throw UsageError("--mode eval is for sessions that only evaluate; leave it out, or run protrain eval");
  take_best(options);
  const ModelData model = data_of(options, flags.model, flags.data);
  // If only the evaluations have a token file, all flags about tokens are meant for the evaluations.
  const bool trains_on_tokens = !flags.data.tokens.empty() || flags.evaluation.tokens.empty();
  std::optional<Batches> batches;
  std::optional<Evaluation> evaluation;
  if (flags.steps == 0) {
    bind_defaults(options, flags.model);
  } else {
    batches.emplace(trains_on_tokens ? flags.data : flags.data.without_tokens(), model, options);
    batches->require_together(options);
  }
  if (flags.epochs > 0) batches->require_epochs();
  if (flags.evaluation.asked()) evaluation.emplace(flags.evaluation, flags.data, model, options, *batches);
  require_places(flags, model, options);

  const Session session = [&] {
    const ProfilingLine line(options);
    return create_session(options, flags.model);
  }();
  const Rank rank = rank_of(session.get());
  if (!rank.leads()) flags.metrics = flags.report = "";
  try {
    if (!batches) return write_without_steps(session.get(), flags, rank);
    if (evaluation) evaluation->settle(session.get(), rank);
    return Training(session.get(), *batches, evaluation, flags, rank).run();
  } catch (const std::exception &failure) {
    if (rank.alone()) throw;
    return give_up(rank, failure);
  }
}

void add_evaluation(CLI::App &command, EvaluationFlags &flags) {
  command.add_option("--eval-input", flags.arrays, "data for evaluations, as for --input; they may have other shapes");
  command.add_option("--eval-tokens", flags.tokens, "token ids for evaluations, as for --tokens");
  command.add_option("--eval-batch", flags.batch, "windows or samples in a batch of evaluations [--batch]")
      ->check(positive_number());
  command.add_option("--eval-sequence", flags.sequence, "tokens in a window of evaluations [--sequence]")
      ->check(positive_number());
  command
      .add_option(
          "--eval-every", flags.every,
          "N: evaluates after every N steps, and after the last; with --save, each one that is the best so far leaves "
          "a checkpoint, and --keep removes the earlier ones")
      ->check(positive_number());
  command
      .add_option("--patience", flags.patience,
                  "N: ends the run after N evaluations in a row that are no better than the best")
      ->check(positive_number());
}

}  // namespace

void add_train(CLI::App &app, int &status) {
  CLI::App *command = app.add_subcommand("train", "train a model for a number of steps");
  auto flags = std::make_shared<TrainFlags>();
  command
      ->add_option("MODEL", flags->model,
                   "an ONNX file whose output is a scalar loss, or what --loss compares with labels")
      ->required();
  CLI::Option *steps =
      command->add_option("--steps", flags->steps,
                          "N: how many steps this run takes; 0: none, and no data are read, to write --export or "
                          "--save-adapter from a checkpoint (--resume)");
  steps->check(whole_number("N"));
  CLI::Option *until =
      command->add_option("--until-step", flags->until,
                          "N, instead of --steps: until step N, counted over all runs that resume one another");
  until->check(positive_number())->excludes(steps);
  command
      ->add_option(
          "--epochs", flags->epochs,
          "N, instead of --steps: until every window of tokens, or every row of the arrays, was taken N times, "
          "counted over all runs that resume one another")
      ->check(positive_number())
      ->excludes(steps)
      ->excludes(until);
  flags->data.add_to(*command);
  command
      ->add_option("--shuffle", flags->data.shuffle,
                   "SEED: windows of tokens, or rows of the arrays, come in a random order, each once an epoch; a run "
                   "that resumes with the same seed goes on in this order")
      ->check(whole_number(""));
  command->add_option("--metrics", flags->metrics,
                      "FILE.jsonl: one line per step; a run that resumes keeps the lines of the steps before it");
  command->add_option("--save", flags->save.directory, "DIR: a checkpoint after the last step, in a folder of its own");
  command->add_option("--save-every", flags->save.every, "N: also a checkpoint after every N steps")
      ->check(positive_number());
  command
      ->add_option("--keep", flags->save.keep,
                   "N: only the newest N checkpoints stay, and the best one; older ones in --save are removed")
      ->check(positive_number());
  add_evaluation(*command, flags->evaluation);
  command->add_option("--export", flags->export_path,
                      "OUT.onnx: the model with the weights after the last step, and its adapters merged; --steps 0 "
                      "--resume DIR/best.json writes the weights of the best evaluation");
  command->add_option("--save-adapter", flags->adapter_path,
                      "DIR: the trained adapters, in the form of Hugging Face's PEFT");
  command->add_option("--report", flags->report,
                      "OUT.html: what a step cost, alarms, and pictures of loss, learning rate, memory and queues; "
                      "OUT.json: the same as data");
  flags->session.add_to(*command);
  command->callback([flags, &status] { status = train(*flags); });
}

}  // namespace tool
