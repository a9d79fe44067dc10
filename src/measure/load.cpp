#include "measure/load.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>

#include "backend/issue.h"
#include "base/error.h"
#include "base/processors.h"
#include "base/signals.h"
#include "measure/stopwatch.h"

namespace protrain::measure {

namespace {

constexpr std::uint64_t kBytes = 512ull << 10;  // fits the caches, so that cores limit the speed of copies, not memory
constexpr double kAlone = 0.05;                 // seconds of the load alone
constexpr std::size_t kTurns = 5;              // an odd number: medians are taken

template <typename Do>
std::jthread start_thread(const Do &act) {
  const BlockedSignals blocked;
  const Processors processors;
  try {
    return std::jthread([act, processors] {
      processors.give_to(pthread_self());
      act();
    });
  } catch (const std::system_error &error) {
    fail(Code::nomem, "profiling", "the system refused a thread: {}", error.what());
  }
}

}  // namespace

Load::Load(backend::Device &device) : device_(device), from_(kBytes, "profiling"), to_(kBytes, "profiling") {}

double Load::share_beside(const std::function<void()> &work) {
  std::array<double, kTurns> alone{}, beside{};
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    const double start = steady_now();
    alone[turn] = until([&] { return steady_now() - start > kAlone; });
    beside[turn] = speed_beside(work);
  }
  std::ranges::sort(alone);
  std::ranges::sort(beside);
  return std::clamp(beside[kTurns / 2] / alone[kTurns / 2], 0.05, 1.0);
}

// Runs `work` once on a thread of its own. Returns the load's speed meanwhile.
double Load::speed_beside(const std::function<void()> &work) {
  std::atomic<bool> over{false};
  std::exception_ptr failure;
  const auto guarded = [&] {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    over = true;
  };
  std::jthread worker = start_thread(guarded);  // its destructor joins the thread if anything throws
  const double beside = until([&] { return over.load(); });
  worker.join();
  if (failure) std::rethrow_exception(failure);
  return beside;
}

// Copies until `stop` returns true. Returns copies per second.
double Load::until(const std::function<bool()> &stop) {
  stop_ = &stop;
  count_ = 0;
  const double start = steady_now();
  backend::run_step(device_, [this] { loop(); });
  return static_cast<double>(count_) / (steady_now() - start);
}

void Load::loop() {
  do {
    device_.copy(Queue::compute, {.to = to_.data(), .from = from_.data(), .bytes = kBytes});
    ++count_;
  } while (!(*stop_)());
}

}  // namespace protrain::measure
