#include "comm/mpi/start.h"

#include <dlfcn.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <thread>

#include "base/error.h"

namespace protrain::comm::mpi {

namespace {

// The state and the results of a call of MPI_Init_thread, which a separate thread makes.
struct Start {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  int code = MPI_SUCCESS, level = MPI_THREAD_SINGLE;
};

pid_t starter = 0;  // the process that started MPI

// Ends MPI when the process exits; otherwise mpirun would report a crash. Does not end MPI after a failure, because
// MPI_Finalize would wait for messages that never come. Does nothing in a forked child, which inherits this handler of
// exit, because MPI belongs to the parent. The mutex is not taken there either: a thread of the parent may have held it
// during the fork.
void finish_mpi() {
  if (getpid() != starter) return;
  const std::lock_guard lock(mpi_mutex);
  int over = 0;
  if (MPI_Finalized(&over) == MPI_SUCCESS && over == 0 && !any_broken) MPI_Finalize();
}

// Starts MPI and returns the level of threads that it allows. MPI_Init_thread waits for every rank of the job and knows
// no deadline, so a separate thread calls it. If a rank never comes, that thread never returns.
int initialize(Clock::time_point deadline) {
  static bool abandoned = false;
  require(!abandoned, Code::state, "comm", "MPI is still waiting for a rank that did not come; end this process");
  // Puts MPI's functions among the global symbols, because Open MPI loads components that look for them there.
  Dl_info info;
  if (dladdr(reinterpret_cast<const void *>(&MPI_Init_thread), &info) != 0)
    dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  const auto start = std::make_shared<Start>();
  try {
    std::thread([start] {
      int level = MPI_THREAD_SINGLE;
      const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
      const std::lock_guard lock(start->mutex);
      start->code = code;
      start->level = level;
      start->over = true;
      start->changed.notify_one();
    }).detach();
  } catch (const std::system_error &error) {
    fail(Code::nomem, "comm", "cannot start a thread: {}", error.what());
  }
  std::unique_lock lock(start->mutex);
  abandoned = !start->changed.wait_until(lock, deadline, [&] { return start->over; });
  any_broken = any_broken || abandoned;
  require(!abandoned, Code::timeout, "comm",
          "MPI did not start in time, because not all ranks of the job called it; look for a rank that ended early");
  check(start->code, "MPI_Init_thread");
  starter = getpid();
  std::atexit(finish_mpi);
  return start->level;
}

}  // namespace

void check(int code, const char *what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(Code::peer, "comm", "{}: {}", what, text);
}

void start_mpi(Clock::time_point deadline) {
  int begun = 0, over = 0, level = 0;
  check(MPI_Initialized(&begun), "MPI_Initialized");
  check(MPI_Finalized(&over), "MPI_Finalized");
  require(over == 0, Code::state, "comm", "the host program has called MPI_Finalize, so there is no MPI any more");
  if (begun == 0)
    level = initialize(deadline);
  else
    check(MPI_Query_thread(&level), "MPI_Query_thread");
  require(level >= MPI_THREAD_SERIALIZED, Code::unsupported, "comm",
          "MPI was started for one thread; the host program must ask MPI_Init_thread for MPI_THREAD_SERIALIZED");
}

}  // namespace protrain::comm::mpi
