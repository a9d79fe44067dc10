#include "base/threads.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <vector>

#include "base/cgroup.h"
#include "base/error.h"
#include "base/processors.h"
#include "base/signals.h"

namespace protrain {

namespace {
constexpr std::size_t kStackBytes = 8 << 20;
constexpr auto kSpin = std::chrono::microseconds(30);  // a few times the cost of waking a thread
// Team::enter() may exchange the processors of two members if it was this short this many times in a row.
constexpr auto kShort = std::chrono::milliseconds(1);
constexpr int kTimesInARow = 8;

struct Abandonment {};  // unwinds a member's work after another member's work threw

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}
}  // namespace

// WaitCounter: a number that threads wait for. It does not use std::atomic's wait(), which yields several times before
// it sleeps: if other processes want the cores, each yield gives them a whole time slice. A futex sleeps at once, and
// the system wakes the sleeper ahead of other processes.
class WaitCounter {
 public:
  std::uint32_t now() const { return value_.load(std::memory_order_acquire); }

  void advance() {
    value_.fetch_add(1);
    if (sleepers_.load() > 0) ::syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max());
  }

  // Sleeps while the number is `old`.
  void sleep(std::uint32_t old) {
    sleepers_.fetch_add(1);
    while (value_.load() == old) ::syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, old, nullptr);
    sleepers_.fetch_sub(1);
  }

  // Spins for a moment while the number is `old`. Returns true if it has changed.
  bool changes_soon(std::uint32_t old) const {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 64; ++i) {
        if (now() != old) return true;
        pause();
      }
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

  // Waits while the number is `old`: spins, then sleeps. If spinning was in vain several times in a row, other threads
  // probably need the cores. From then on only one wait in eight spins, and the others sleep at once, until a spin
  // succeeds.
  void await(std::uint32_t old) {
    constexpr unsigned kPatience = 4, kSeldom = 8;
    thread_local unsigned in_vain = 0, waits = 0;
    if (now() != old) return;
    if (in_vain < kPatience || ++waits % kSeldom == 0) {
      if (changes_soon(old)) {
        in_vain = 0;
        return;
      }
      ++in_vain;
    }
    sleep(old);
  }

 private:
  std::atomic<std::uint32_t> value_ = 0;
  std::atomic<std::uint32_t> sleepers_ = 0;
};

struct Team::State {
  struct Seat {  // a thread, and the exception of its last run
    pthread_t thread;
    State *state;
    int index;
    int processor;  // its index, if the member has one of its own
    std::exception_ptr error;
  };

  State(int size, Team *team)
      : size(size), spins(size <= processors.count()), team(team), seats(static_cast<std::size_t>(size)) {}
  // Waits while the counter is `old`. Does not spin if the team has more threads than there are processors, because a
  // spinning thread would take the processor of a working thread.
  void await(WaitCounter &counter, std::uint32_t old) { spins ? counter.await(old) : counter.sleep(old); }
  void start(const std::string &name);
  bool have_own_processors() const { return size == processors.count(); }
  void give_processors(const Seat &seat) const noexcept;
  void follow_caller(std::chrono::steady_clock::duration entered) noexcept;
  void stop() noexcept;
  void first_member();
  void other_member(Seat &seat);
  void take_part(Seat &seat);
  void barrier();

  const int size;
  const Processors processors;
  const bool spins;
  Team *const team;
  std::vector<Seat> seats;
  int started = 0;
  int apart = 0;  // short calls of enter() in a row whose caller used the processor of a member other than the first
  std::atomic<bool> stopping = false;

  // For enter(): the caller advances `asked`, and member 0 advances `answered` when it is done.
  WaitCounter asked, answered;
  void (*issue)(void *) = nullptr;
  void *issue_argument = nullptr;
  std::exception_ptr issue_error;

  // For run(): member 0 advances `begun` when the work starts, and the last of the other members to finish advances
  // `ended`. The two counters lie on separate cache lines, so that writes to one do not disturb threads that spin on
  // the other.
  alignas(64) WaitCounter begun;
  void (*work)(void *, Member &) = nullptr;
  void *work_argument = nullptr;
  alignas(64) WaitCounter ended;
  std::atomic<int> pending = 0;

  alignas(64) WaitCounter phase;  // of the barrier
  std::atomic<int> arrived = 0;
  std::atomic<bool> failed = false;
};

namespace {
thread_local const void *seated_first_of = nullptr;  // the team whose member 0 this thread is
}

void Team::State::start(const std::string &name) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  int error = 0;
  const BlockedSignals blocked;
  for (; started < size; ++started) {
    Seat &seat = seats[static_cast<std::size_t>(started)];
    seat.state = this;
    seat.index = seat.processor = started;
    auto begin = [](void *at) -> void * {
      Seat &own = *static_cast<Seat *>(at);
      own.index == 0 ? own.state->first_member() : own.state->other_member(own);
      return nullptr;
    };
    error = pthread_create(&seat.thread, &attributes, begin, &seat);
    if (error != 0) break;
    std::array<char, 16> title{};  // the length the system keeps; a std::string might throw while threads run
    std::snprintf(title.data(), title.size(), "%s/%d", name.c_str(), started);
    pthread_setname_np(seat.thread, title.data());
    give_processors(seat);
  }
  pthread_attr_destroy(&attributes);
  if (error == 0) return;
  const int got = started;
  stop();
  fail(Code::nomem, "threads",  // the system also says EAGAIN when memory for a stack is short
       "the system refused thread {} of {} ({}): ask for fewer threads, or raise the limits on processes and memory",
       got + 1, size, std::strerror(error));
}

// A team that has a member for each processor gives each its own. Otherwise the system may wake two members on one
// processor while another one is idle, and leave them there for the time of many short kernels.
void Team::State::give_processors(const Seat &seat) const noexcept {
  if (have_own_processors())
    processors.give_one_to(seat.thread, seat.processor);
  else
    processors.give_to(seat.thread);
}

// Gives the first member the caller's processor, where the caller has stayed for some calls. The caller sleeps while
// the first member issues work, so the two can share a processor. On the processor of another member, the caller stops
// this member's spinning, and short calls take two to five times as long. Members stay where they are if calls are
// long: a member's data may lie in the memory that is next to its processor. `entered` is the time of the last call.
void Team::State::follow_caller(std::chrono::steady_clock::duration entered) noexcept {
  if (!have_own_processors() || entered > kShort) {
    apart = 0;
    return;
  }
  const int here = processors.here();
  const auto there = std::ranges::find(seats, here, &Seat::processor);
  apart = there == seats.end() || there == seats.begin() ? 0 : apart + 1;
  if (apart < kTimesInARow) return;
  apart = 0;
  std::swap(seats.front().processor, there->processor);
  give_processors(seats.front());
  give_processors(*there);
}

void Team::State::stop() noexcept {
  stopping = true;
  asked.advance();
  begun.advance();
  for (int i = 0; i < started; ++i) pthread_join(seats[static_cast<std::size_t>(i)].thread, nullptr);
}

void Team::State::first_member() {
  seated_first_of = this;
  for (std::uint32_t seen = 0;; ++seen) {
    asked.sleep(seen);
    if (stopping) return;
    try {
      issue(issue_argument);
    } catch (...) {
      issue_error = std::current_exception();
    }
    answered.advance();
  }
}

void Team::State::other_member(Seat &seat) {
  for (std::uint32_t seen = 0;; ++seen) {
    await(begun, seen);
    if (stopping) return;
    take_part(seat);
    if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) ended.advance();
  }
}

void Team::State::take_part(Seat &seat) {
  Member member(seat.index, size, team);
  try {
    work(work_argument, member);
    return;
  } catch (const Abandonment &) {
    return;
  } catch (...) {
    seat.error = std::current_exception();
  }
  failed = true;
  phase.advance();  // wakes members that wait in the barrier
}

void Team::State::barrier() {
  const std::uint32_t now = phase.now();
  if (failed) throw Abandonment();
  if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
    arrived.store(0, std::memory_order_relaxed);
    phase.advance();
    return;
  }
  await(phase, now);
  if (failed) throw Abandonment();
}

void Member::barrier() {
  if (size > 1) team_->state_->barrier();
}

Range share(std::int64_t count, std::int64_t grain, int index, int size) {
  const std::int64_t grains = count / grain + (count % grain != 0);
  const std::int64_t each = grains / size, extra = grains % size;
  auto edge = [&](std::int64_t i) { return std::min(count, (each * i + std::min(i, extra)) * grain); };
  return {edge(index), edge(index + 1)};
}

Team::Team(int size, const std::string &name) {
  require(size >= 1, Code::arg, "threads", "a team of {} threads was asked for, at least 1 is needed", size);
  state_ = std::make_unique<State>(size, this);
  state_->start(name);
}

Team::~Team() { state_->stop(); }

int Team::size() const { return state_->size; }

void Team::enter(void (*issue)(void *), void *argument) {
  if (seated_first_of == state_.get()) return issue(argument);
  State &s = *state_;
  s.issue = issue;
  s.issue_argument = argument;
  const std::uint32_t before = s.answered.now();
  const auto start = std::chrono::steady_clock::now();
  s.asked.advance();
  s.answered.sleep(before);
  s.follow_caller(std::chrono::steady_clock::now() - start);
  if (s.issue_error) std::rethrow_exception(std::exchange(s.issue_error, nullptr));
}

void Team::run(void (*work)(void *, Member &), void *argument) {
  State &s = *state_;
  if (s.size == 1) {
    Member alone(0, 1, this);
    return work(argument, alone);
  }
  s.work = work;
  s.work_argument = argument;
  s.arrived.store(0, std::memory_order_relaxed);
  s.failed.store(false, std::memory_order_relaxed);
  s.pending.store(s.size - 1, std::memory_order_relaxed);
  const std::uint32_t before = s.ended.now();
  s.begun.advance();
  s.take_part(s.seats[0]);
  s.await(s.ended, before);
  std::exception_ptr first;
  for (State::Seat &seat : s.seats)
    if (std::exception_ptr error = std::exchange(seat.error, nullptr); error && !first) first = error;
  if (first) std::rethrow_exception(first);
}

int available_threads() {
  const int count = Processors().count(), quota = cgroup::processor_quota();
  return quota > 0 ? std::min(count, quota) : count;
}

}  // namespace protrain
