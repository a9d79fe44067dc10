#include "comm/launch.h"

#include <cstdlib>
#include <limits>
#include <string_view>

#include "base/text.h"

namespace protrain::comm {

namespace {

// A launcher and the environment variables that it sets.
struct Launcher {
  const char *mark;  // is set if this launcher started the process
  const char *rank, *ranks;
  Transport transport;
  MpiKind mpi;
};

// All known launchers. The first one whose mark is set started this process. mpirun stands before srun, because mpirun
// also runs inside a step of srun, and both marks are set then. Slurm sets SLURM_STEP_ID for the processes of srun, but
// not for a batch script, which is one process whatever SLURM_NTASKS says.
constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", Transport::mpi, MpiKind::openmpi},
    {"PMIX_RANK", "SLURM_PROCID", "SLURM_NTASKS", Transport::mpi, MpiKind::openmpi},
    {"PMI_SIZE", "PMI_RANK", "PMI_SIZE", Transport::mpi, MpiKind::mpich},
    {"PMI_RANK", "SLURM_PROCID", "SLURM_NTASKS", Transport::mpi, MpiKind::mpich},
    {"SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", Transport::gloo, MpiKind::openmpi},
};

const Launcher *launcher() {
  for (const Launcher &candidate : kLaunchers)
    if (std::getenv(candidate.mark) != nullptr) return &candidate;
  return nullptr;
}

std::optional<std::int64_t> number_in(const char *variable) {
  const char *text = std::getenv(variable);
  return text == nullptr ? std::nullopt : parse_integer(text);
}

}  // namespace

std::optional<Launched> launched() {
  const Launcher *found = launcher();
  if (found == nullptr) return std::nullopt;
  const std::optional<std::int64_t> rank = number_in(found->rank), ranks = number_in(found->ranks);
  if (!rank || !ranks || *rank < 0 || *rank >= *ranks || *ranks == 1) return std::nullopt;
  if (*ranks > std::numeric_limits<int>::max()) return std::nullopt;
  return Launched{found->transport, static_cast<int>(*rank), static_cast<int>(*ranks)};
}

MpiKind mpi_of_launcher() {
  const Launcher *found = launcher();
  return found == nullptr ? MpiKind::openmpi : found->mpi;
}

}  // namespace protrain::comm
