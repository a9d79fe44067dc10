// QueueWorkers: one worker thread for each queue that the issuing thread does not run itself, and the state that they
// share. Workers sleep between runs. In a run, each queue has a list of instructions. The queue's worker takes the
// instructions in the order of the list, and starts an instruction once it has been issued and its waits are over.
//   A thread that must wait notes which instructions it waits for. So the end of an instruction wakes only the threads
// that can go on. To wake all threads after each instruction would take longer than a small instruction.
#pragma once

#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/processors.h"
#include "base/queue.h"

namespace protrain::run {

// A condition for the start of an instruction: instruction number `instruction` of another queue, `queue`, must be
// over.
struct Wait {
  Queue queue;
  std::size_t instruction;
};

// The workers' view of the instructions of one run.
class Job {
 public:
  virtual ~Job() = default;
  virtual const std::vector<std::size_t> &list(Queue queue) const = 0;
  virtual const std::vector<Wait> &waits(std::size_t instruction) const = 0;
  virtual void execute(std::size_t instruction) = 0;  // on a worker
};

class QueueWorkers {
 public:
  explicit QueueWorkers(const PerQueue<bool> &own_worker);
  ~QueueWorkers();
  QueueWorkers(const QueueWorkers &) = delete;
  QueueWorkers &operator=(const QueueWorkers &) = delete;

  bool has(Queue queue) const { return own_worker_[queue]; }

  void begin(Job &job);
  void issue(std::size_t instruction);  // workers may run this instruction and all before it
  // The issuing thread calls this before it runs an instruction of `queue` itself. Returns true when `waits` are over.
  // Returns false if the run has failed; then the thread must not run the instruction.
  bool wait(Queue queue, const std::vector<Wait> &waits);
  void over(std::size_t instruction, Queue queue);  // the issuing thread has run this instruction itself
  void fail(std::size_t instruction, std::exception_ptr error);
  // For the issuing thread, after it has issued everything: sleeps until all workers have ended.
  void wait_for_workers();
  // The first failure of a run, and its instruction. `error` is nullptr if nothing failed.
  struct Outcome {
    std::exception_ptr error;
    std::size_t instruction = 0;
  };
  // Marks all `instructions` as issued, waits until all workers have ended, and returns the run's outcome.
  Outcome end(std::size_t instructions);

 private:
  // A thread that works on a queue: the queue's worker, or the issuing thread if the queue has no worker. Before it
  // sleeps, the thread notes in `waits` and `issued` what it waits for. Once the waits are over and `issued`
  // instructions have been issued, or once the run has failed, wake() sets `waits` to nullptr and wakes the thread.
  struct Sleeper {
    std::condition_variable woken;
    const std::vector<Wait> *waits = nullptr;
    std::size_t issued = 0;
  };

  void start(Queue queue, const Processors &processors);
  void close();
  void serve(Queue queue);
  void work_through(Queue queue);
  bool may_go_on(std::size_t issued, const std::vector<Wait> &waits) const;
  void sleep(std::unique_lock<std::mutex> &lock, Sleeper &sleeper, std::size_t issued, const std::vector<Wait> &waits);
  void wake();  // every sleeper that may go on

  const PerQueue<bool> own_worker_;
  std::mutex mutex_;
  std::condition_variable changed_;  // a run begins, its last worker ends, or the workers are closed
  PerQueue<Sleeper> sleepers_;
  Job *job_ = nullptr;
  std::uint64_t run_ = 0;         // counts runs, so that a worker takes part in each once
  std::size_t issued_ = 0;        // instructions with lower numbers may start
  PerQueue<std::size_t> over_{};  // per queue: its last instruction that is over, plus one
  std::size_t working_ = 0;       // workers that still work on the run
  bool closed_ = false, failed_ = false;
  Outcome outcome_;
  std::vector<std::thread> workers_;
};

}  // namespace protrain::run
