// The launcher of this process (mpirun, mpiexec or srun), and what its variables say.
#pragma once

#include <cstdint>
#include <optional>

#include "comm/channel.h"

namespace protrain::comm {

struct Launched {
  Transport transport;
  int rank, ranks;
  bool operator==(const Launched &) const = default;
};

// Returns what a launcher says of this process, or nothing if none started it together with others. A group of one
// process counts as not launched. Reads variables only, and loads no MPI.
//   Open MPI's mpirun, and srun --mpi=pmix      mpi
//   MPICH's mpiexec, and srun --mpi=pmi2        mpi
//   srun without a plugin for MPI               gloo
// In the last case MPI would find each process alone, and open() refuses it. Gloo can join the processes by these
// numbers, once the user says where they meet.
std::optional<Launched> launched();

enum class MpiKind : std::uint8_t { openmpi, mpich };

// The MPI whose launcher started this process; Open MPI if none did. A process must use the MPI of its launcher.
MpiKind mpi_of_launcher();

}  // namespace protrain::comm
