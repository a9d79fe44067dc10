// Executor: runs one Program as often as asked, and reports each run.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "comm/channel.h"
#include "program/summary.h"
#include "run/kernels.h"
#include "run/queue_workers.h"
#include "run/store.h"

namespace protrain::run {

// The outcome of the last run.
struct Report {
  std::uint64_t runs = 0;  // so far
  double seconds = 0;
  PerTier<std::uint64_t> peak_bytes{};
  struct Timed {  // the last timed run
    std::uint64_t step = 0;
    double seconds = 0;
    std::vector<program::Span> spans;  // per instruction of the Program; 0 to 0: it did not run
  } timed;
  program::Beside beside{};  // the queues that run at the same time as compute
  bool replayed = false;     // the run was a replay of the device's recording
  std::string not_recorded;  // the device's reason for its last refusal to record the step; "": none
};

// Faults that tests inject to find mistakes that timing hides.
struct FaultInjection {
  bool delays = false;  // instructions now and then sleep before they start
  bool poison = false;  // released bytes are filled with NaN
};

// Watch: looks at memory around each instruction of a run.
class Watch {
 public:
  virtual ~Watch() = default;
  virtual void before(std::size_t instruction) = 0;
  virtual void after(std::size_t instruction) = 0;
};

// Executor runs the instructions in the order that the Program fixes. bind() looks up all kernels and addresses once,
// so a run is one loop over the list of instructions. If an instruction's queue has a worker, the loop hands the
// instruction to the worker. Otherwise the loop runs the instruction itself.
//   On an asynchronous device the loop only appends instructions to the device's queues, and events on the device make
// one queue wait for another. To time a run on such a device costs an event for each instruction, so only timed runs
// record these events.
//   If no queue has a worker, an asynchronous device does all work of a run by itself, and the work is always the same.
// So the device records the step, if it can: once with times and once without. Later runs replay a recording with a
// single call. A Program that copies host memory that is not pinned is not recorded.
class Executor final : public Job {
 public:
  // `device`, `graph`, `program`, `store`, `workers` and `channel` must outlive the Executor.
  Executor(backend::Device &device, const graph::Graph &graph, const program::Program &program, Store &store,
           QueueWorkers &workers, comm::Channel &channel);

  // Resolves kernels and addresses of every instruction.
  void bind(Kernels &kernels, const backend::Optimizer &optimizer, const FaultInjection &faults = {});

  // Launches each kernel of the device's queues once, unless it is in `warm`, and adds it to `warm`. After that the
  // device has done the one-time work of first launches, such as loading code. Memory may hold anything, but the
  // Program's status word must be other than 0, so that no Update changes anything.
  void warm_up(std::set<const backend::Kernel *> &warm);

  // Runs the Program once. Errors name the instruction, and their facts tell how far the run had changed the state.
  // With several ranks a failed run aborts the channel, so that no other rank waits for this one. A recording that
  // fails is no failed run: its step is issued. A cancel can stop a run only before the instruction Program::commit
  // begins, and a replay only before the replay begins. If `timed`, the report gets the spans of this run. Runs on a
  // device that is not asynchronous are always timed.
  void run(const backend::StepScalars &scalars, const std::atomic<bool> &cancelled, bool timed);

  // Runs the Program again, one instruction at a time, on this thread alone. Does not change what report() returns. The
  // Program's status word must be other than 0, so that no Update changes anything. Weights on the disk are written
  // again all the same, so an error says state_broken if such a write failed.
  void run_watched(const backend::StepScalars &scalars, Watch &watch);

  const Report &report() const { return report_; }

 private:
  // An instruction with its kernel and addresses.
  struct Issue {
    Queue queue;
    backend::Kernel *kernel = nullptr;  // nullptr: a move, or an exchange between ranks
    std::vector<void *> inputs, outputs;
    void *scratch = nullptr;
    std::uint64_t bytes = 0, disk_offset = 0;
    Tier from = Tier::device, to = Tier::device;
    bool adds = false;        // once this instruction has begun, part of a batch may be in the step's sums of gradients
    bool updates = false;     // once this instruction has begun, some parameters may have taken the step
    bool into_state = false;  // writes what outlives the step
    bool earlier = false;     // belongs to the step before
    bool over = false;        // has ended in this run; only noted if `earlier` is true
    bool awaited = false;     // other instructions wait for its event
    std::vector<Wait> waits;  // waits for instructions that threads run
    std::vector<std::size_t> events;  // waits for instructions that the device's queues run
    std::vector<std::pair<std::byte *, std::uint64_t>> poison;
    std::vector<comm::Send> sends;  // to other ranks
    std::vector<comm::Receive> receives;
    std::vector<backend::Copy> own;  // messages from this rank to itself
    bool between_ranks = false;
  };

  // The device's recordings of the step.
  struct Recordings {
    bool possible = false;
    std::uint64_t from_run = 0;  // the first run that may record; 0: no run has succeeded yet
    std::array<std::unique_ptr<backend::Recording>, 2> of;  // without and with times; nullptr: runs are issued
  };

  // The current run, or the last one.
  struct Run {
    std::atomic<bool> added{false}, updated{false};  // an instruction that adds or updates has begun
    std::atomic<bool> unwritten{false};              // a write to the disk failed, of something that outlives the step
    bool stopped = false;                            // by a cancel
    bool timed = false;
    bool recording = false;  // instructions are only recorded, and none of them runs
    const backend::StepScalars *scalars = nullptr;
    const std::atomic<bool> *cancelled = nullptr;
    std::chrono::steady_clock::time_point start;
  };

  const std::vector<std::size_t> &list(Queue queue) const override { return lists_[queue]; }
  const std::vector<Wait> &waits(std::size_t instruction) const override { return issues_[instruction].waits; }
  void execute(std::size_t instruction) override;
  // True if the device runs the queue's instructions itself, some time after the issuing thread appended them.
  bool runs_ahead(Queue queue) const { return device_.info().asynchronous && !workers_.has(queue); }

  Issue resolve(const program::Instruction &instruction, Kernels &kernels, const backend::Optimizer &optimizer,
                const FaultInjection &faults) const;
  backend::Kernel &kernel_of(const program::Instruction &instruction, Kernels &kernels,
                             const backend::Optimizer &optimizer) const;
  void prepare(const backend::StepScalars &scalars, const std::atomic<bool> &cancelled, bool timed);
  void carry_out(backend::Recording *recording);
  void note_run();
  void issue();
  void record();
  void append();
  void finish_earlier(QueueWorkers::Outcome &outcome);
  bool stopped(std::size_t instruction);
  void move(const Issue &issue);
  void add_messages(const program::Instruction &instruction, Issue &issue) const;
  void exchange(const Issue &issue);
  void work(const Issue &issue);
  void note_spans();
  void state_facts(Error &error, std::size_t instruction) const;
  void name_instruction(Error &error, std::size_t instruction) const;
  void settle(QueueWorkers::Outcome &outcome);
  [[noreturn]] void rethrow(const QueueWorkers::Outcome &outcome) const;

  backend::Device &device_;
  const graph::Graph &graph_;
  const program::Program &program_;
  Store &store_;
  QueueWorkers &workers_;
  comm::Channel &channel_;
  FaultInjection faults_;
  std::vector<Issue> issues_;
  PerQueue<std::vector<std::size_t>> lists_;  // per queue with a worker: its instructions
  Recordings recordings_;
  Run run_;
  Report report_;
};

}  // namespace protrain::run
