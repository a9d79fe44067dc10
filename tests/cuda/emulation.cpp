#include "cuda/emulation.h"

#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// Saves the registers that a function must preserve, switches to the other stack, and returns to the place where the
// code on that stack had stopped.
asm(R"(
.pushsection .text
.type protrain_switch_stack, @function
protrain_switch_stack:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.popsection
)");
extern "C" void protrain_switch_stack(void **save, void *to);
#endif

protrain::emulation::Coordinate threadIdx, blockIdx, blockDim, gridDim;

namespace protrain::emulation {

namespace {
constexpr int kWarp = 32;
constexpr std::size_t kStackBytes = 64 << 10;

[[noreturn]] void stop(const char *reason) {
  std::fprintf(stderr, "thread %u of block %u: %s\n", threadIdx.x, blockIdx.x, reason);
  std::abort();
}

enum class Waits : std::uint8_t { nothing, block, warp, over };

// A stack on which a thread of the block runs. Once the thread has ended, another thread may use the stack.
class Fiber {
 public:
  Fiber() : stack_(new std::byte[kStackBytes]) {}
  Fiber(const Fiber &) = delete;
  Fiber &operator=(const Fiber &) = delete;

  void begin(int thread, void (*work)()) {
    thread_ = thread;
    work_ = work;
    waits = Waits::nothing;
#if defined(__x86_64__)
    auto top = reinterpret_cast<std::uintptr_t>(stack_.get() + kStackBytes) & ~std::uintptr_t{15};
    auto *place = reinterpret_cast<void **>(top);
    *--place = nullptr;  // aligns the stack as a call would
    *--place = reinterpret_cast<void *>(&Fiber::enter);
    for (int i = 0; i < 6; ++i) *--place = nullptr;
    at_ = place;
#else
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = kStackBytes;
    makecontext(&context_, &Fiber::enter, 0);
#endif
  }

  // Runs the thread until it waits or ends.
  void go_on() {
    current = this;
    threadIdx.x = static_cast<unsigned>(thread_);
#if defined(__SANITIZE_ADDRESS__)
    void *fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stack_.get(), kStackBytes);
#endif
#if defined(__x86_64__)
    protrain_switch_stack(&caller_, at_);
#else
    swapcontext(&caller_, &context_);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
    current = nullptr;
  }

  void leave(Waits reason) {
    waits = reason;
#if defined(__SANITIZE_ADDRESS__)
    void *fake = nullptr;
    __sanitizer_start_switch_fiber(reason == Waits::over ? nullptr : &fake, caller_stack_, caller_bytes_);
#endif
#if defined(__x86_64__)
    protrain_switch_stack(&at_, caller_);
#else
    swapcontext(&context_, &caller_);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, &caller_stack_, &caller_bytes_);
#endif
  }

  int thread() const { return thread_; }
  Waits waits = Waits::over;
  static inline Fiber *current = nullptr;

 private:
  static void enter() {
    Fiber *self = current;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &self->caller_stack_, &self->caller_bytes_);
#endif
    self->work_();
    self->leave(Waits::over);
    std::abort();
  }

  std::unique_ptr<std::byte[]> stack_;
  int thread_ = 0;
  void (*work_)() = nullptr;
#if defined(__x86_64__)
  void *at_ = nullptr, *caller_ = nullptr;
#else
  ucontext_t context_{}, caller_{};
#endif
#if defined(__SANITIZE_ADDRESS__)
  const void *caller_stack_ = nullptr;
  std::size_t caller_bytes_ = 0;
#endif
};

std::vector<std::unique_ptr<Fiber>> fibers;  // one for each thread that waits; threads that never wait share one
std::vector<std::byte> exchanged_bytes;      // kExchangeBytes for each thread
std::unique_ptr<std::byte[]> shared;
const std::function<void()> *work = nullptr;
bool backwards = false;

struct Copy {
  void *to;
  const void *from;  // nullptr: zeros
  std::size_t bytes;
};
std::vector<std::vector<Copy>> copies;  // by thread: the copies that the thread has not waited for yet

void run_thread() { (*work)(); }

// If all threads of the group wait for `reason`, lets them go on and returns true.
bool let_go(const std::vector<Fiber *> &group, Waits reason) {
  if (group.empty() || !std::ranges::all_of(group, [&](Fiber *f) { return f->waits == reason; })) return false;
  for (Fiber *fiber : group) fiber->waits = Waits::nothing;
  return true;
}

// Checks the threads that still wait after others have ended. It is an error if one of them waits for the whole block,
// or if they do not make up whole warps.
void check_left(const std::vector<Fiber *> &waiting) {
  for (const Fiber *fiber : waiting)
    if (fiber->waits == Waits::block) stop("some threads wait that others have left behind");
  if (waiting.size() % kWarp != 0) stop("part of a warp has left");
}

void run_block(int threads) {
  std::vector<int> order(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) order[static_cast<std::size_t>(i)] = backwards ? threads - 1 - i : i;
  std::vector<Fiber *> waiting;  // in the order in which threads run
  std::size_t used = 0;
  for (int thread : order) {
    if (used == fibers.size()) fibers.push_back(std::make_unique<Fiber>());
    Fiber *fiber = fibers[used].get();
    fiber->begin(thread, run_thread);
    fiber->go_on();
    if (fiber->waits == Waits::over) continue;
    waiting.push_back(fiber);
    ++used;
  }
  if (waiting.size() != order.size()) check_left(waiting);
  while (!waiting.empty()) {
    bool any = let_go(waiting, Waits::block);
    for (std::size_t first = 0; first < waiting.size(); first += kWarp)
      any |= let_go({waiting.begin() + static_cast<std::ptrdiff_t>(first),
                     waiting.begin() + static_cast<std::ptrdiff_t>(first + kWarp)},
                    Waits::warp);
    if (!any) stop("threads wait at different places");
    std::size_t over = 0;
    for (Fiber *fiber : waiting) {
      if (fiber->waits == Waits::nothing) fiber->go_on();
      over += fiber->waits == Waits::over;
    }
    if (over == 0) continue;
    std::erase_if(waiting, [](Fiber *f) { return f->waits == Waits::over; });
    check_left(waiting);
  }
}
}  // namespace

void run(const Grid &grid, const std::function<void()> &thread) {
  if (grid.threads % kWarp != 0 || grid.threads < kWarp || grid.threads > 1024) stop("a block is not of whole warps");
  work = &thread;
  exchanged_bytes.resize(static_cast<std::size_t>(grid.threads) * kExchangeBytes);
  copies.resize(static_cast<std::size_t>(grid.threads));
  gridDim.x = static_cast<unsigned>(grid.blocks);
  blockDim.x = static_cast<unsigned>(grid.threads);
  for (std::int64_t block = 0; block < grid.blocks; ++block) {
    blockIdx.x = static_cast<unsigned>(block);
    shared.reset(new std::byte[grid.shared_bytes]);
    std::memset(shared.get(), 0xFF, grid.shared_bytes);  // NaNs
    run_block(grid.threads);
    if (!std::ranges::all_of(copies, [](const std::vector<Copy> &own) { return own.empty(); }))
      stop("nobody has waited for a copy");
  }
}

void *shared_memory() { return shared.get(); }

void meet_block() { Fiber::current->leave(Waits::block); }
void meet_warp() { Fiber::current->leave(Waits::warp); }

void *exchange_place(int lane) {
  const auto own = static_cast<std::size_t>(threadIdx.x);
  const std::size_t thread = lane < 0 ? own : own / kWarp * kWarp + static_cast<std::size_t>(lane) % kWarp;
  return &exchanged_bytes[thread * kExchangeBytes];
}

void copy_async(void *to, const void *from, std::size_t bytes) {
  copies[threadIdx.x].push_back({to, from, bytes});
  if (!backwards) wait_for_copies();
}
void wait_for_copies() {
  for (const Copy &copy : copies[threadIdx.x]) {
    if (copy.from != nullptr)
      std::memcpy(copy.to, copy.from, copy.bytes);
    else
      std::memset(copy.to, 0, copy.bytes);
  }
  copies[threadIdx.x].clear();
}

void run_backwards(bool yes) { backwards = yes; }

}  // namespace protrain::emulation
