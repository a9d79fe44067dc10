// The calls of a Session that compute. step() picks the Program that fits the inputs, runs it, reads a few numbers, and
// decides what to do about a number that is not finite. session_state.cpp has the calls between steps.
#include "session/session.h"

#include <bit>
#include <cmath>
#include <new>

#include "comm/agree.h"
#include "onnx_import/floats.h"
#include "session/aftermath.h"
#include "session/checked_gradients.h"
#include "session/checkpoint.h"
#include "session/report.h"

namespace protrain::session {

namespace {

// A cancel flag that is never set, for runs that must not stop. With several ranks no running call may stop, because
// the other ranks wait for this rank's exchanges. So the ranks agree on a cancel before a call.
constexpr std::atomic<bool> kNever{false};

constexpr const char *kLost = "; the session is lost: go on from a checkpoint";
constexpr const char *kHalfApplied = "; some parameters took the step and others did not";
constexpr const char *kAnew = "; the step begins anew with its first batch";
constexpr const char *kNoMemory = "out of memory";  // short enough to need no memory

// True if run number `run` of a Program, counted from 1, is timed. In a timed run a GPU reports when each instruction
// finished, which costs a percent or two of the step. Run 1 is timed, but it is cold. Run 2 is the first that replays
// the recording (the CUDA graph). After that a few timed runs are enough for a report.
bool is_timed(std::uint64_t run) { return std::has_single_bit(run) || run % 64 == 0; }

StepAccount::Terms terms_of(const draft::Draft &draft) {
  return {.accumulation = draft.micro_batches(),
          .ranks = static_cast<std::uint64_t>(draft.settings.ranks.count),
          .scales_loss = draft.scales_loss(),
          .skips = draft.settings.on_nonfinite == draft::NonfinitePolicy::skip,
          .schedule = draft.settings.schedule,
          .learning_rate = draft.settings.learning_rate};
}

// Returns the StepAlarms of a new session: the session's trained parameters, and the alarms of the draft.
StepAlarms alarms_of(const draft::Draft &draft) {
  const graph::Graph &graph = draft.first().training.graph;
  const std::vector<program::BufferId> &norms = draft.programs.variants[0].step.squared_norms;
  std::vector<StepAlarms::Parameter> trained;
  for (std::size_t p = 0; p < norms.size(); ++p)
    if (norms[p] != program::BufferId::none) trained.push_back({p, graph.value(graph.parameters[p]).name});
  return {std::move(trained), draft.alarms};
}

// Adds to an error's text what the error means for the session. If memory is too short for that, the text stays as it
// is, and capture_or_out_of_memory() in protrain.cpp returns a fixed text with the same meaning.
void append(Error &error, const char *text) {
  try {
    error.text += text;
  } catch (const std::bad_alloc &) {
  }
}

}  // namespace

std::unique_ptr<Session> Session::create(const draft::Options &options, const onnx_import::ModelSource &model,
                                         draft::Log log, const draft::Log &progress) {
  draft::Settings settings = draft::settings_of(options);
  require(settings.hardware.empty(), Code::arg, "hardware",
          "a session runs on this machine; the option hardware is only for plans");
  Channels channels = open_channels(options, settings);
  try {
    draft::take_declared(settings, options, onnx_import::Model::open(model)->declared());
    settings.device = device_of_rank(*channels.hosts, settings.device);
    std::unique_ptr<backend::Device> device = draft::open_device(settings);
    add_step_channel(channels, device->info(), settings);
    return std::make_unique<Session>(settings, model, std::move(device), channels, std::move(log), progress);
  } catch (const std::exception &error) {
    comm::abort_for(*channels.steps, error);
    throw;
  }
}

Session::Session(const draft::Settings &settings, const onnx_import::ModelSource &source,
                 std::unique_ptr<backend::Device> device, Channels channels, draft::Log log, const draft::Log &progress)
    : machine_(settings, source, std::move(device), std::move(channels), progress),
      ranks_(*machine_.channels().hosts),
      inputs_(machine_.draft()),
      outputs_(machine_.draft(), machine_.store()),
      account_(terms_of(machine_.draft()), resume(machine_)),
      alarms_(alarms_of(machine_.draft())) {
  reporting_.log = std::move(log);
  reporting_.norms = GroupNorms(draft().norm_groups, alarms_.trained());
  if (reporting_.log)
    reporting_.log(created_json(machine_.device(), draft(), machine_.memory(), machine_.channels().why_not_nccl));
}

void Session::require_usable() const {
  if (lost_)
    throw Error(Code::state, "session", "an earlier error lost this session; destroy it", {.state_broken = true});
}

// Throws Code::state if the session only evaluates. `what` continues the text "the session only evaluates and ".
void Session::require_training(const char *what) const {
  require(draft().settings.trains, Code::state, "mode",
          "the session only evaluates and {}; create it without the option mode=eval", what);
}

void Session::judge_exception() noexcept { lost_ = lost_ || aftermath_of_exception() == Aftermath::lost; }

// Records whether the exception that is being handled makes the session unusable. If it does, aborts the channel, and
// adds to the error's text that the session is lost. Then throws the exception again.
void Session::judge_and_rethrow() try { throw; } catch (Error &error) {
  judge_exception();
  if (lost_) machine_.channels().steps->abort(error.text);
  if (lost_) append(error, kLost);
  throw;
} catch (const std::bad_alloc &) {
  if (!ranks_.several()) throw;
  // Makes the session unusable: the other ranks went on with the call, and this rank cannot know how far.
  lost_ = true;
  machine_.channels().steps->abort(kNoMemory);
  throw Error(Code::nomem, "", kNoMemory, {.channel_broken = true});
} catch (...) {
  lost_ = true;
  machine_.channels().steps->abort("unknown failure");
  throw;
}

void Session::set_input(const std::string &name, DType dtype, const Shape &shape, const void *data) {
  if (inputs_.is_empty(name, shape)) return;
  const std::size_t i = inputs_.find(name);
  inputs_.require_taken(i, dtype, shape);
  const program::BufferId buffer = draft().programs.state.of_value[0].at(draft().first().forward.inputs[i]);
  const DType computed = inputs_.value(i).type.dtype;
  std::vector<std::byte> converted(dtype == computed ? 0 : byte_count(computed, shape));
  if (dtype != computed) {
    const auto *given = static_cast<const std::byte *>(data);
    onnx_import::convert_floats(dtype, given, element_count(shape), computed, converted.data());
    data = converted.data();
  }
  machine_.write_input(buffer, data, byte_count(computed, shape));
  inputs_.note(i, shape, data);
}

StepResult Session::step() {
  return stoppable([this] { return take_batch(); });
}

float Session::evaluate() {
  return stoppable([this] { return take_evaluation(); });
}

void Session::predict() {
  stoppable([this] { take_prediction(); });
}

void Session::set_learning_rate(double rate) {
  require(std::isfinite(rate) && rate >= 0, Code::arg, "rate", "a learning rate of {} is not a number >= 0", rate);
  account_.set_learning_rate(rate);
}

Session::Run Session::run_of(std::size_t variant, bool last) const {
  const Machine::Executors &executors = machine_.executors(variant);
  const draft::ProgramSet::Variant &programs = draft().programs.variants[variant];
  const draft::StepSimulation &simulation = draft().simulations[variant];
  const graph::Graph &graph = draft().variants[variant]->training.graph;
  if (last) return {executors.step.get(), &programs.step, &graph, &simulation.step};
  return {executors.accumulate.get(), &programs.accumulate, &graph, &simulation.accumulate};
}

// In mode=eval, a step's Program is the evaluation.
Session::Run Session::evaluation_of(std::size_t variant) const {
  if (!draft().settings.trains) return run_of(variant, true);
  return {machine_.executors(variant).evaluation.get(), &draft().programs.variants[variant].evaluation,
          &draft().variants[variant]->forward};
}

// Waits until all ranks are ready for the call. `prepare` checks this rank's arguments and returns the subject of the
// call, such as the number of a parameter, or the shape variant of the inputs.
void Session::meet(Call call, const std::function<std::size_t()> &prepare) {
  const bool stops = ranks_.several() && (call == Call::step || call == Call::evaluate || call == Call::predict);
  const bool cancelled = stops && cancelled_.exchange(false, std::memory_order_relaxed);
  const auto terms = [&] {
    if (call != Call::evaluate && call != Call::predict && call != Call::use_adapters) require_adapters_in_use();
    const std::size_t subject = prepare();
    const Counters &counters = account_.counters();
    return Ranks::Terms{.step = counters.steps,
                        .micro_batch = account_.micro_batch(),
                        .subject = subject,
                        .learning_rate = learning_rate()};
  };
  ranks_.meet(call, cancelled, std::cref(terms));  // a reference, as a copy would allocate
}

StepResult Session::take_batch() {
  const bool last = account_.is_last();
  std::size_t variant = 0;
  meet(Call::step, [&] {
    require_training("takes no step");
    return variant = inputs_.variant();
  });
  last_ = run_of(variant, last);
  machine_.set_status(account_.status());
  account_.begin_batch();
  backend::StepScalars now = account_.scalars(draft().settings.optimizer, draft().groups.groups);
  now.first_sample += static_cast<std::uint64_t>(ranks_.rank()) * draft().variants[variant]->numbered_samples;
  execute(*last_.executor, now);
  read_numbers(*last_.program, variant);
  const bool has_norms = last && reads_norms();
  const std::uint64_t scale = account_.loss_scale();
  const std::optional<StepResult> result = account_.add(numbers_, last_.executor->report().seconds);
  // If the loss scale shrinks, the scale counts as the cause of the NaN or infinity, which is then not traced. The
  // scale can shrink only in the step's last batch: only gradients make it shrink, and earlier batches check only the
  // loss.
  const bool shrinks = account_.loss_scale() < scale;
  const bool traces = !result || (!numbers_.status.finite() && !shrinks && !std::exchange(reporting_.traced, true));
  const std::string origin = traces ? trace_step(variant, now) : std::string();
  if (!result) refuse_nonfinite(numbers_.status, last, origin);
  // Keeps the learning rates and other optimizer numbers for the deferred Updates, which the next step or settle()
  // runs.
  const bool defers = machine_.settlement() != nullptr;
  if (defers && numbers_.status.finite()) held_ = now.update;
  if (has_norms) reporting_.norms.take(step_count(), alarms_.trained(), account_.last_weight());
  if (last) log_step(*result, scale);
  if (last) judge_step(*result, has_norms);
  warn_of_recording(last_.executor->report());
  finish_cancelled();
  return *result;
}

// True if the report wants the times of this Program's next run.
bool Session::times_next_run(const run::Executor &executor) {
  return std::exchange(reporting_.times_wanted, false) || is_timed(executor.report().runs + 1);
}

void Session::execute(run::Executor &executor, backend::StepScalars scalars) {
  scalars.earlier = held_.value_or(backend::GroupNumbers{});
  machine_.set_held(held_.has_value());
  held_.reset();
  outputs_.forget();
  const bool timed = times_next_run(executor);
  try {
    executor.run(scalars, ranks_.several() ? kNever : cancelled_, timed);
  } catch (Error &error) {
    const Aftermath aftermath = aftermath_of(error.facts);
    if (aftermath == Aftermath::unchanged) throw;  // this batch did not happen; the ones before it count
    // Starts the step anew, because sums that contain only part of a batch are useless.
    account_.begin_anew();
    if (aftermath == Aftermath::lost) throw;
    if (error.facts.state_touched) append(error, kHalfApplied);
    if (account_.accumulates()) append(error, kAnew);
    throw;
  }
}

void Session::read_numbers(const program::Program &program, std::size_t variant) {
  numbers_.status = machine_.status();
  numbers_.batches.resize(static_cast<std::size_t>(ranks_.count()));
  for (std::size_t r = 0; r < numbers_.batches.size(); ++r) {
    RoundNumbers::Batch &batch = numbers_.batches[r];
    machine_.read_result(program, program.loss, &batch.loss, sizeof batch.loss, r);
    if (account_.accumulates()) machine_.read_result(program, program.weight, &batch.weight, sizeof batch.weight, r);
  }
  numbers_.norm = 0;
  if (account_.is_last()) machine_.read_result(program, program.norm, &numbers_.norm, sizeof numbers_.norm);
  numbers_.samples = draft().variants[variant]->numbered_samples;
  if (!account_.is_last() || !reads_norms()) return;
  for (StepAlarms::Parameter &trained : alarms_.trained())
    machine_.read_result(program, program.squared_norms[trained.position], &trained.squared_norm, sizeof(double));
}

// True if this step reads the norm of each parameter's gradient. If the device has memory of its own, only a few steps
// read them, because each norm is then a separate small copy that takes some microseconds. They are steps in a row, as
// many as the alarm for zero gradients needs.
bool Session::reads_norms() const {
  constexpr std::uint64_t kFirst = 4, kPeriod = 64;
  const std::uint64_t step = account_.counters().steps;
  return machine_.device().shares_memory || step < kFirst || step % kPeriod < StepAlarms::kZeroSteps;
}

// Raises alarms if the numbers of a complete step show that something is wrong. If memory is too short for an alarm's
// text, the step still succeeds.
void Session::judge_step(const StepResult &result, bool has_norms) {
  try {
    log_alarms(alarms_.judge({.step = step_count(),
                              .applied = numbers_.status.finite(),
                              .norm = result.grad_norm,
                              .learning_rate = result.learning_rate,
                              .scale_is_least = draft().scales_loss() && account_.loss_scale() == LossScale::kLeast,
                              .has_norms = has_norms}));
  } catch (const std::bad_alloc &) {
  }
}

// Logs the last `count` alarms.
void Session::log_alarms(std::size_t count) {
  if (!reporting_.log) return;
  for (std::size_t i = alarms_.all().size() - count; i < alarms_.all().size(); ++i)
    reporting_.log(alarm_json(alarms_.all()[i]));
}

// Finds the node where NaN or infinity first appeared in the last step. Returns a text about this node, or "" if none
// is found. Throws only if that loses the session.
std::string Session::trace_step(std::size_t variant, const backend::StepScalars &scalars) {
  const NonfiniteTrace::Watched step = NonfiniteTrace::step(*draft().variants[variant], *last_.program);
  const std::optional<NonfiniteTrace::Origin> origin = watch(*last_.executor, step, scalars, numbers_.status);
  if (!origin) return "";
  try {
    log_alarms(alarms_.raise(scalars.step, {"nonfinite", origin->subject, origin->sentence}));
    return "; " + origin->sentence;
  } catch (const std::exception &) {
    return "";
  }
}

// Does the same for the last evaluation, and adds the text to its error.
void Session::trace_evaluation(std::size_t variant, const Run &evaluation, Error &error) {
  const NonfiniteTrace::Watched watched =
      NonfiniteTrace::evaluation(*draft().variants[variant], *evaluation.program, *evaluation.graph);
  const std::optional<NonfiniteTrace::Origin> origin =
      watch(*evaluation.executor, watched, forward_scalars(), machine_.status());
  if (!origin) return;
  append(error, "; ");
  append(error, origin->sentence.c_str());
}

// Runs a Program again and traces its NaN or infinity. `status` is the one with which the first run ended. The second
// run begins with the status of the first one, which says "not finite", so no Update of the second run changes
// anything. But in the overlap order the first run may have changed some parameters before it met the NaN or infinity.
// In that case the second run can compute other numbers than the first. Throws only if the second run loses the
// session.
std::optional<NonfiniteTrace::Origin> Session::watch(run::Executor &executor, const NonfiniteTrace::Watched &watched,
                                                     const backend::StepScalars &scalars, program::StatusWord status) {
  try {
    machine_.set_status(status);
    machine_.set_held(false);
    NonfiniteTrace trace(watched, machine_.store());
    executor.run_watched(scalars, trace);
    return status.finite() ? std::nullopt : trace.origin(status);
  } catch (const Error &error) {
    if (aftermath_of(error.facts) == Aftermath::lost) throw;
    return std::nullopt;
  } catch (const std::exception &) {
    return std::nullopt;
  }
}

void Session::refuse_nonfinite(program::StatusWord status, bool last, const std::string &origin) {
  const bool overlap = draft().decision.plan.order == plan::OptimizerOrder::overlap;
  const char *anew = account_.accumulates() ? kAnew : "";
  if (status.names_loss())
    fail(Code::nonfinite, "loss", "the loss is not finite; no parameter was changed{}{}", anew, origin);
  const std::string &name = machine_.parameters().name(status.parameter());
  if (!overlap || !last)
    fail(Code::nonfinite, name, "the gradient of {} is not finite; no parameter was changed{}{}", name, anew, origin);
  account_.count_half_applied();
  throw Error(Code::nonfinite, name,
              fmt::format("the gradient of {} is not finite; parameters updated before it took step {}, it and the "
                          "others did not{}",
                          name, step_count(), origin),
              {.state_touched = true});
}

// Runs the Updates that the last step deferred, and then a Program that has no backward.
void Session::run_forward(run::Executor &executor, bool timed) {
  settle();
  outputs_.forget();
  machine_.set_status({});
  executor.run(forward_scalars(), ranks_.several() ? kNever : cancelled_, timed);
}

backend::StepScalars Session::forward_scalars() const {
  const Counters &counters = account_.counters();
  return {.step = counters.steps, .seed = counters.seed};
}

float Session::take_evaluation() {
  std::size_t variant = 0;
  meet(Call::evaluate, [&] { return variant = inputs_.variant(); });
  const Run evaluation = evaluation_of(variant);
  const bool reported = !draft().settings.trains;  // otherwise the report is about the last step
  if (reported) last_ = evaluation;
  run_forward(*evaluation.executor, reported && times_next_run(*evaluation.executor));
  const program::Program &program = *evaluation.program;
  Ranks::Evaluated own{.finite = machine_.status().finite()};
  machine_.read_result(program, program.loss, &own.loss, sizeof own.loss);
  if (program.weight != program::BufferId::none)
    machine_.read_result(program, program.weight, &own.weight, sizeof own.weight);
  try {
    const float loss = ranks_.mean(own);
    finish_cancelled();
    return loss;
  } catch (Error &error) {  // on all ranks, unless a channel failed
    if (error.code == Code::nonfinite && error.subject == "loss") trace_evaluation(variant, evaluation, error);
    throw;
  }
}

void Session::take_prediction() {
  std::size_t variant = 0;
  meet(Call::predict, [&] {
    require(draft().predicts(), Code::state, "keep_outputs",
            "the session keeps no outputs; create it with keep_outputs=NAME");
    return variant = inputs_.variant_for_outputs();
  });
  run_forward(*machine_.executors(variant).prediction, false);
  outputs_.note(variant);
  finish_cancelled();
}

void Session::read_output(const std::string &name, DType dtype, void *out, std::uint64_t bytes) {
  require_usable();
  const std::size_t i = outputs_.find(name);
  const auto &[type, program, at] = outputs_.last(i);
  const DType own = outputs_.dtype(i);
  require(dtype == own || (is_float(own) && dtype == DType::f32), Code::type, name, "output {} is {}, not {}", name,
          name_of(own), name_of(dtype));
  const std::uint64_t wanted = byte_count(dtype, type.shape);
  require(bytes == wanted, Code::shape, name, "output {} is {}, which takes {} bytes, not {}", name,
          to_text(graph::Type{dtype, type.shape}), wanted, bytes);
  if (dtype == type.dtype) return machine_.read_output(program, at, out, bytes);
  std::vector<std::byte> values(byte_count(type.dtype, type.shape));
  machine_.read_output(program, at, values.data(), values.size());
  onnx_import::convert_floats(type.dtype, values.data(), element_count(type.shape), dtype,
                              static_cast<std::byte *>(out));
}

// Runs the Updates that the last step deferred.
void Session::settle() {
  if (!held_) return;
  machine_.set_held(true);
  machine_.settlement()->run({.earlier = *std::exchange(held_, std::nullopt)}, kNever, false);
}

// Throws Code::cancelled if a cancel came too late to stop the call, which has run to its end. With several ranks
// nothing is thrown: the cancel stays pending, and the next call is cancelled on all ranks.
void Session::finish_cancelled() {
  if (ranks_.several()) return;
  if (cancelled_.exchange(false, std::memory_order_relaxed))
    throw Error(Code::cancelled, "", "cancelled; the call had gone too far to stop and ran to its end");
}

void Session::log_step(const StepResult &result, std::uint64_t scale) const {
  log_line([&] {
    return step_json(step_count(), result, account_.seconds(), draft().scales_loss() ? scale : 0, reporting_.norms);
  });
}

// Warns once per session that the device could not record (capture) a step for replay. Training goes on, but slower.
void Session::warn_of_recording(const run::Report &report) {
  if (!reporting_.log || report.not_recorded.empty() || std::exchange(reporting_.warned, true)) return;
  log_line([&] {
    return warning_json(
        fmt::format("{} could not record the step, so that each is issued kernel by kernel, which is "
                    "slower; now and then it is tried again: {}",
                    machine_.device().name, report.not_recorded));
  });
}

std::string Session::plan_json() const { return plan::to_json(draft().decision.plan); }

std::string Session::program_text() const {
  return program::print(draft().programs.variants[0].step, draft().first().training.graph);
}

std::string Session::graph_text() const { return draft().first().training.graph.print(); }

std::string Session::check_gradients(std::size_t samples) {
  return stoppable([&] {
    require(!ranks_.several(), Code::unsupported, "ranks", "gradients are checked by one rank alone");
    require_training("has no gradients");
    require_adapters_in_use();
    require(samples > 0, Code::arg, "samples", "at least one element of each parameter is compared, not 0");
    account_.require_complete("session", "; check gradients before it or after its last batch");
    const std::size_t variant = inputs_.variant();
    settle();
    account_.begin_batch();
    outputs_.forget();
    std::string json = session::check_gradients(
        machine_, {variant, account_.scalars(draft().settings.optimizer, draft().groups.groups)}, samples, cancelled_);
    finish_cancelled();
    return json;
  });
}

std::string Session::report_json() {
  reporting_.times_wanted = true;
  const Run run = last_.executor != nullptr ? last_ : run_of(0, true);
  const double seconds = draft().settings.trains ? account_.seconds() : run.executor->report().seconds;
  return session::report_json(run.executor->report(),
                              {seconds, account_.last_learning_rate(), machine_.memory(), alarms_.all(),
                               reporting_.norms, draft().settings.traces},
                              *run.program, *run.graph, run.simulation);
}

}  // namespace protrain::session
