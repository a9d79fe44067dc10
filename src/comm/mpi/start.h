// The start and the end of MPI in this process.
#pragma once

#include <mpi.h>

#include <chrono>
#include <mutex>

namespace protrain::comm::mpi {

using Clock = std::chrono::steady_clock;

inline std::mutex mpi_mutex;     // serializes the calls of MPI
inline bool any_broken = false;  // a message or a start of MPI is still under way, so MPI cannot be ended

// Throws Code::peer with MPI's text unless the call succeeded.
void check(int code, const char *what);

// Starts MPI unless the host program has started it. If this function starts MPI, MPI ends when the process exits.
// Throws Code::timeout if the other ranks of the job have not come by the deadline. The caller holds mpi_mutex.
void start_mpi(Clock::time_point deadline);

}  // namespace protrain::comm::mpi
