// The launcher of this process (mpirun, mpiexec or srun), and its environment variables.
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

// Returns the transport, rank and number of ranks that a launcher gave this process. Returns an empty optional if no
// launcher started the process, or if the process is the only rank. Reads environment variables only, and loads no MPI.
// The transport depends on the launcher:
//   Open MPI's mpirun, and srun --mpi=pmix      mpi
//   MPICH's mpiexec, and srun --mpi=pmi2        mpi
//   srun without a plugin for MPI               gloo
// In the last case MPI would not connect the processes: each would be a single rank. So open() refuses MPI. Gloo can
// connect them: it uses the rank and number of ranks that this function returns, and the user must give a rendezvous.
std::optional<Launched> launched();

enum class MpiKind : std::uint8_t { openmpi, mpich };

// Returns the MPI whose launcher started this process, or Open MPI if none did. A process must use the MPI of its
// launcher.
MpiKind mpi_of_launcher();

}  // namespace protrain::comm
