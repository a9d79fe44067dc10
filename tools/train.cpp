// protrain train: feeds batches, steps, reports progress, and writes the results asked for.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

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

#include "batches.h"
#include "checkpoints.h"
#include "clock.h"
#include "commands.h"
#include "evaluation.h"
#include "profiling_line.h"
#include "progress.h"
#include "rank.h"
#include "report.h"
#include "session_flags.h"

namespace tool {

namespace {

using Json = nlohmann::ordered_json;

struct TrainFlags {
  std::string model, metrics, export_path, adapter_path, report;
  std::uint64_t steps = 0, epochs = 0;  // one of them is not 0
  CheckpointFlags save;
  EvaluationFlags evaluation;
  DataFlags data;
  SessionFlags session;
};

volatile std::sig_atomic_t signal_number = 0;

// Makes the first Ctrl-C (or SIGTERM) end the run after the present step; results are still written. The second ends
// the run at once.
void stop_after_step_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int number) { signal_number = number; };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

std::string bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return fmt::format("{:08x}", bits);
}

struct Step {
  std::uint64_t number = 0;
  float loss = 0;
  double learning_rate = 0, seconds = 0, tokens = 0;
  double data_seconds = 0;          // of `seconds`: waiting for data
  std::optional<double> eval_loss;  // of an evaluation after the step
  bool has_perplexity = false;
};

Json report_of(protrain_session *session) {
  const char *json = nullptr;
  check(protrain_session_report(session, &json));
  return Json::parse(json);
}

// The metrics file: one JSON object per line. Each line is flushed, so that a reader can follow the file and a kill
// loses nothing.
class Metrics {
 public:
  // `goes_on`: the run resumes a checkpoint, so its lines are appended.
  Metrics(const std::string &path, bool goes_on) : path_(path) {
    if (path.empty()) return;
    file_.reset(std::fopen(path.c_str(), goes_on ? "a" : "w"));
    if (!file_) fail();
  }

  // `logged` is the session's log line of the step; "" if there is none.
  void write(protrain_session *session, const Step &step, const std::string &logged) {
    if (!file_) return;
    double norm = 0;
    check(protrain_session_grad_norm(session, &norm));
    if (report_.is_null()) report_ = report_of(session);
    Json line = {{"step", step.number},
                 {"loss", step.loss},
                 {"grad_norm", norm},
                 {"learning_rate", step.learning_rate},
                 {"seconds", step.seconds},
                 {"data_seconds", step.data_seconds},
                 {"tokens_per_second", step.tokens / step.seconds},
                 {"device_peak_bytes", report_.at("device_peak_bytes")},
                 {"host_peak_bytes", report_.at("host_peak_bytes")},
                 {"loss_bits", bits_of(step.loss)},
                 {"grad_norm_bits", bits_of(static_cast<float>(norm))}};
    if (const Json about = logged.empty() ? Json() : Json::parse(logged); about.contains("grad_norms"))
      line["grad_norms"] = about.at("grad_norms");
    if (step.eval_loss) line["eval_loss"] = *step.eval_loss;
    if (step.eval_loss && step.has_perplexity) line["eval_perplexity"] = std::exp(*step.eval_loss);
    fmt::print(file_.get(), "{}\n", line.dump());
    if (std::fflush(file_.get()) != 0) fail();
  }

 private:
  struct Close {
    void operator()(std::FILE *file) const { std::fclose(file); }
  };
  [[noreturn]] void fail() const { throw Failure(fmt::format("{}: {}", path_, std::strerror(errno))); }

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  Json report_;  // of the first step; all steps have the same shapes, and so the same peaks
};

void warn(const std::string &text) { fmt::print(stderr, "protrain: warning: {}\n", text); }

void alarm(const Json &about) { fmt::print(stderr, "protrain: alarm: {}\n", about.value("text", "")); }

// A log callback that shows the session's warnings and alarms. It keeps the newest step's line in the string `user`.
void hear(const char *line, void *user) {
  const std::string_view text = line;
  if (text.find("\"event\":\"warning\"") != std::string_view::npos) warn(Json::parse(line).value("text", ""));
  if (text.find("\"event\":\"alarm\"") != std::string_view::npos) alarm(Json::parse(line));
  if (text.find("\"event\":\"step\"") != std::string_view::npos) *static_cast<std::string *>(user) = text;
}

// Returns the session's "created" log line.
Json created(protrain_session *session) {
  std::string line;
  check(protrain_session_set_log(
      session, [](const char *text, void *user) { *static_cast<std::string *>(user) = text; }, &line));
  check(protrain_session_set_log(session, nullptr, nullptr));
  return line.empty() ? Json::object() : Json::parse(line);
}

// Prints for people what was created: "0.2 M parameters in 28 tensors; 4.1 MiB on cpu, 2 threads".
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
  fmt::print("{}: {:.2f} M parameters in {} tensors; {:.1f} MiB on {}, {} threads\n", record.model,
             static_cast<double>(all) * 1e-6, count, about.value("device_peak_bytes", 0.0) / 1048576,
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
  for (const Json &known : about.value("alarms", Json::array())) alarm(known);
}

// Runs one batch. Returns false if a rank has cancelled it. If the library refuses a value, adds a hint about the token
// file to the error: a token may lie beyond the vocabulary.
bool take_batch(protrain_session *session, const Batches &batches, float *loss) {
  const std::unique_ptr<protrain_error, Destroy> error(protrain_step(session, loss));
  if (!error) return true;
  const protrain_code code = protrain_error_code(error.get());
  if (code == PROTRAIN_ERROR_CANCELLED) return false;
  throw LibraryFailure(error.get(), code == PROTRAIN_ERROR_ARG ? batches.suspicion() : "");
}

// Takes step `number`. Returns nothing if a rank has cancelled it. Steps are counted over all runs, so that a resumed
// run goes on with the next batches. The batches of a step are dealt out to the ranks one by one.
std::optional<Step> take_step(protrain_session *session, Batches &batches, std::uint64_t number,
                              std::uint64_t accumulation, const Rank &rank) {
  const double start = seconds_now();
  const std::uint64_t all = accumulation * rank.count;
  Step step{.number = number, .tokens = batches.tokens_per_batch() * static_cast<double>(all)};
  const double waited = batches.waited();
  check(protrain_session_learning_rate(session, &step.learning_rate));
  for (std::uint64_t batch = (number - 1) * all + rank.number; batch < number * all; batch += rank.count) {
    batches.feed(session, batch, batch + rank.count);
    if (!take_batch(session, batches, &step.loss)) return std::nullopt;
  }
  step.seconds = seconds_now() - start;
  step.data_seconds = batches.waited() - waited;
  return step;
}

// True if a signal ends the run before the next step. Among several ranks it only cancels the next step, and the
// cancelled step ends the run, because all ranks must make the same calls and the signal may not have reached the
// others yet.
bool ends_by_signal(protrain_session *session, const Rank &rank) {
  if (signal_number == 0 || rank.alone()) return signal_number != 0;
  protrain_session_cancel(session);
  return false;
}

// Checks before the run that the results can be written to their places. A run that resumes checks the directory of
// checkpoints once it knows its first step.
void require_writable(const TrainFlags &flags, bool resumes) {
  const auto require_directory = [](const std::filesystem::path &path) {
    if (access(path.empty() ? "." : path.c_str(), W_OK | X_OK) != 0)
      throw Failure(fmt::format("{}: {}", path.string(), std::strerror(errno)));
  };
  for (const std::string *file : {&flags.export_path, &flags.metrics, &flags.report})
    if (!file->empty()) require_directory(std::filesystem::path(*file).parent_path());
  if (flags.save.directory.empty()) return;
  if (mkdir(flags.save.directory.c_str(), 0777) != 0 && errno != EEXIST)
    throw Failure(fmt::format("{}: {}", flags.save.directory, std::strerror(errno)));
  require_directory(flags.save.directory + "/.");
  if (!resumes) require_no_later(flags.save.directory, 0);
}

// Writes all results, even if one of them fails, and then throws the first failure. The report comes first, because a
// launcher may end the job as soon as one rank has left. All ranks take part in the other two results, so no rank
// leaves before those are written.
void write_results(protrain_session *session, const TrainFlags &flags, Checkpoints &checkpoints, RunRecord &record) {
  std::exception_ptr failure;
  const auto attempt = [&](auto write) {
    try {
      write();
    } catch (const Failure &) {
      if (!failure) failure = std::current_exception();
    }
  };
  attempt([&] {
    if (flags.report.empty()) return;
    record.report = report_of(session);
    record.report["data_seconds"] = record.data_seconds;
    write_text(flags.report, flags.report.ends_with(".json") ? record.report.dump(1) : report_page(record));
  });
  attempt([&] { checkpoints.at_end(session, record.before + record.losses.size()); });
  attempt([&] {
    if (!flags.export_path.empty()) check(protrain_session_export(session, flags.export_path.c_str()));
  });
  attempt([&] {
    if (!flags.adapter_path.empty()) check(protrain_session_export_adapters(session, flags.adapter_path.c_str()));
  });
  if (failure) std::rethrow_exception(failure);
}

// Reports an evaluation, and keeps its checkpoint if it is the best so far. Returns true if the run is to end because
// the loss has not become smaller for long enough.
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

// Trains as one of the ranks. Only rank 0 prints, and writes the metrics and the report. In the other ranks, `flags`
// names no file for the metrics or the report.
int run(protrain_session *session, Batches &batches, std::optional<Evaluation> &evaluation, const TrainFlags &flags,
        const Rank &rank) {
  RunRecord record{.model = flags.model, .ranks = rank.count, .about = created(session)};
  if (rank.leads()) announce(session, record);
  const auto accumulation = record.about.value("accumulation", std::uint64_t{1});
  check(protrain_session_step_count(session, &record.before));
  const std::uint64_t before = record.before;
  batches.settle(session);
  if (rank.leads() && !batches.packing().empty()) fmt::print("{}\n", batches.packing());
  // Epochs are counted over all runs. A run that goes on takes the steps that are left.
  const std::uint64_t all = flags.epochs == 0 ? before + flags.steps
                                              : batches.steps_of(flags.epochs, accumulation * rank.count),
                      steps = all - std::min(all, before);
  Checkpoints checkpoints(flags.save, before, rank);
  if (rank.leads() && before > 0) fmt::print("goes on after step {}\n", before);
  Metrics metrics(flags.metrics, before > 0);
  stop_after_step_on_signals();
  std::uint64_t done = 0;
  bool stopped = false, exhausted = false;
  {
    std::optional<Progress> progress;
    if (rank.leads()) progress.emplace(stdout, steps);
    while (done < steps && !exhausted && !(stopped = ends_by_signal(session, rank))) {
      std::optional<Step> step = take_step(session, batches, before + done + 1, accumulation, rank);
      stopped = !step;
      if (stopped) break;
      ++done;
      record.add(step->loss, step->learning_rate, step->seconds, step->tokens);
      record.data_seconds += step->data_seconds;
      if (evaluation && (evaluation->due(step->number) || done == steps)) {
        step->eval_loss = evaluation->run(session, rank);
        step->has_perplexity = evaluation->has_perplexity();
        record.evaluations.push_back({step->number, *step->eval_loss});
      }
      metrics.write(session, *step, record.step_line);
      if (progress) progress->step(done, step->loss, step->seconds, step->tokens);
      if (step->eval_loss) exhausted = judge(session, *step, *evaluation, checkpoints, progress);
      checkpoints.after(session, step->number);
    }
  }
  stopped = stopped || signal_number != 0;
  if (stopped && rank.leads()) fmt::print("stopped after step {}\n", before + done);
  if (exhausted && rank.leads())
    fmt::print("ended after step {}: no evaluation was better than that of step {}\n", before + done,
               checkpoints.best()->step);
  write_results(session, flags, checkpoints, record);
  // If the run was stopped, returns 128 + the signal's number. A rank that the signal has not reached yet takes the
  // number of Ctrl-C's signal.
  return !stopped ? kOk : 128 + (signal_number != 0 ? signal_number : SIGINT);
}

int train(TrainFlags flags) {
  if (flags.steps == 0 && flags.epochs == 0) throw UsageError("--steps is required, or --epochs");
  if (flags.save.every > 0 && flags.save.directory.empty()) throw UsageError("--save-every needs --save DIR");
  if (flags.save.keep > 0 && flags.save.directory.empty()) throw UsageError("--keep needs --save DIR");
  if ((flags.evaluation.every > 0 || flags.evaluation.patience > 0) && !flags.evaluation.asked())
    throw UsageError("--eval-every and --patience need --eval-input NAME=FILE.npy or --eval-tokens FILE");
  if ((flags.evaluation.batch > 0 || flags.evaluation.sequence > 0) && !flags.evaluation.asked())
    throw UsageError("--eval-batch and --eval-sequence need --eval-input NAME=FILE.npy or --eval-tokens FILE");
  const Options options = flags.session.make_options();
  const ModelData model = data_of(options, flags.model, flags.data);
  // Flags about tokens may be for those of evaluations alone.
  const bool trains_on_tokens = !flags.data.tokens.empty() || flags.evaluation.tokens.empty();
  Batches batches(trains_on_tokens ? flags.data : flags.data.without_tokens(), model, options);
  if (flags.epochs > 0) batches.require_epochs();
  std::optional<Evaluation> evaluation;
  if (flags.evaluation.asked()) evaluation.emplace(flags.evaluation, flags.data, model, options, batches);
  require_writable(flags, !value_of(options, "resume").empty());
  const Session session = [&] {
    const ProfilingLine line(options);
    return create_session(options, flags.model);
  }();
  const Rank rank = rank_of(session.get());
  if (!rank.leads()) flags.metrics = flags.report = "";
  try {
    if (evaluation) evaluation->settle(session.get(), rank);
    return run(session.get(), batches, evaluation, flags, rank);
  } catch (const std::exception &failure) {
    if (rank.alone()) throw;
    return give_up(rank, failure);
  }
}

}  // namespace

void add_train(CLI::App &app, int &status) {
  CLI::App *command = app.add_subcommand("train", "train a model for a number of steps");
  auto flags = std::make_shared<TrainFlags>();
  command
      ->add_option("MODEL", flags->model,
                   "an ONNX file whose output is a scalar loss, or what --loss compares with labels")
      ->required();
  CLI::Option *steps = command->add_option("--steps", flags->steps, "number of steps of this run");
  steps->check(positive_number());
  command
      ->add_option(
          "--epochs", flags->epochs,
          "N, instead of --steps: until every window of tokens, or every row of the arrays, was taken N times, "
          "counted over all runs that resume one another")
      ->check(positive_number())
      ->excludes(steps);
  flags->data.add_to(*command);
  command->add_option("--shuffle", flags->data.shuffle,
                      "SEED: windows of tokens, or rows of the arrays, come in a random order, each once an epoch; a "
                      "run that resumes with the same seed goes on in this order");
  command->add_option("--metrics", flags->metrics, "FILE.jsonl: one line per step");
  command->add_option("--save", flags->save.directory, "DIR: a checkpoint after the last step, in a folder of its own");
  command->add_option("--save-every", flags->save.every, "N: also a checkpoint after every N steps")
      ->check(positive_number());
  command
      ->add_option("--keep", flags->save.keep,
                   "N: only the newest N checkpoints stay, and the best one; older ones in --save are removed")
      ->check(positive_number());
  command->add_option("--eval-input", flags->evaluation.arrays,
                      "data for evaluations, as for --input; they may have other shapes");
  command->add_option("--eval-tokens", flags->evaluation.tokens, "token ids for evaluations, as for --tokens");
  command->add_option("--eval-batch", flags->evaluation.batch, "windows or samples in a batch of evaluations [--batch]")
      ->check(positive_number());
  command->add_option("--eval-sequence", flags->evaluation.sequence, "tokens in a window of evaluations [--sequence]")
      ->check(positive_number());
  command
      ->add_option("--eval-every", flags->evaluation.every,
                   "N: evaluates after every N steps, and after the last; with --save, the best checkpoint is kept")
      ->check(positive_number());
  command
      ->add_option("--patience", flags->evaluation.patience,
                   "N: ends the run after N evaluations in a row that are no better than the best")
      ->check(positive_number());
  command->add_option("--export", flags->export_path, "OUT.onnx: the trained model, with its adapters merged");
  command->add_option("--save-adapter", flags->adapter_path,
                      "DIR: the trained adapters, in the form of Hugging Face's PEFT");
  command->add_option("--report", flags->report,
                      "OUT.html: what a step cost, alarms, and pictures of loss, learning rate, memory and queues; "
                      "OUT.json: the same as data");
  flags->session.add_to(*command);
  command->callback([flags, &status] { status = train(*flags); });
}

}  // namespace tool
