// A launcher of ranks sets environment variables. The library reads from them which rank this process is.
#include "comm/launch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "errors.h"

namespace protrain::comm::launch_test {
namespace {

using namespace std::chrono_literals;

// Changes the environment while an object of this class exists: sets the given variables, and unsets all other
// variables of launchers.
class Variables {
 public:
  explicit Variables(const std::map<std::string, std::string> &set) {
    for (const char *name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
                             "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"}) {
      if (const char *value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
    }
    for (const auto &[name, value] : set) setenv(name.c_str(), value.c_str(), 1);
    set_ = set;
  }
  ~Variables() {
    for (const auto &[name, value] : set_) unsetenv(name.c_str());
    for (const auto &[name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  Variables(const Variables &) = delete;
  Variables &operator=(const Variables &) = delete;

 private:
  std::map<std::string, std::string> set_, before_;
};

std::optional<Launched> launched_with(const std::map<std::string, std::string> &set) {
  const Variables variables(set);
  return launched();
}

MpiKind mpi_with(const std::map<std::string, std::string> &set) {
  const Variables variables(set);
  return mpi_of_launcher();
}

TEST(Launched, ByNobody) {
  EXPECT_EQ(launched_with({}), std::nullopt);
  EXPECT_EQ(mpi_with({}), MpiKind::openmpi);
}

TEST(Launched, ByMpirunOfOpenMpi) {
  const std::map<std::string, std::string> set{
      {"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "2"}};
  EXPECT_EQ(launched_with(set), (Launched{Transport::mpi, 2, 4}));
  EXPECT_EQ(mpi_with(set), MpiKind::openmpi);
}

TEST(Launched, ByMpiexecOfMpich) {
  EXPECT_EQ(launched_with({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}), (Launched{Transport::mpi, 0, 3}));
  EXPECT_EQ(mpi_with({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}), MpiKind::mpich);
}

TEST(Launched, BySrunWithAPluginForMpi) {
  const std::map<std::string, std::string> step{{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "0"}};
  std::map<std::string, std::string> pmix = step, pmi2 = step;
  pmix["PMIX_RANK"] = "5";
  pmi2["PMI_RANK"] = "5";
  EXPECT_EQ(launched_with(pmix), (Launched{Transport::mpi, 5, 8}));
  EXPECT_EQ(mpi_with(pmix), MpiKind::openmpi);
  EXPECT_EQ(launched_with(pmi2), (Launched{Transport::mpi, 5, 8}));
  EXPECT_EQ(mpi_with(pmi2), MpiKind::mpich);
}

TEST(Launched, BySrunWithoutAPluginForMpi) {
  const std::map<std::string, std::string> step{{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_ID", "0"}};
  EXPECT_EQ(launched_with(step), (Launched{Transport::gloo, 5, 8}));
  // If srun has no plugin for MPI, each process would be the only rank of an MPI of its own. So open() must refuse the
  // transport MPI before it loads an MPI library.
  const Variables variables(step);
  const Error error = test::error_of([] { open({.transport = Transport::mpi, .timeout = 1s}); });
  EXPECT_EQ(error.code, Code::unsupported);
  EXPECT_NE(error.text.find("--mpi=pmix"), std::string::npos) << error.text;
}

TEST(Launched, AScriptOfABatchIsOneProcess) {
  EXPECT_EQ(launched_with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}), std::nullopt);
}

TEST(Launched, TheInnermostLauncherCounts) {  // mpirun or mpiexec in a step of srun
  std::map<std::string, std::string> set{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}};
  set["PMI_RANK"] = "3";
  set["PMI_SIZE"] = "4";
  EXPECT_EQ(launched_with(set), (Launched{Transport::mpi, 3, 4}));
  set["OMPI_COMM_WORLD_RANK"] = "6";
  set["OMPI_COMM_WORLD_SIZE"] = "7";
  EXPECT_EQ(launched_with(set), (Launched{Transport::mpi, 6, 7}));
}

TEST(Launched, OneProcessIsNoGroup) {
  EXPECT_EQ(launched_with({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), std::nullopt);
  EXPECT_EQ(launched_with({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}), std::nullopt);
  EXPECT_EQ(mpi_with({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}), MpiKind::mpich);
}

TEST(Launched, NumbersThatCannotBeMeantAreNone) {
  for (const auto &[rank, ranks] : std::map<std::string, std::string>{
           {"-1", "2"}, {"2", "2"}, {"x", "2"}, {"0", ""}, {"1", "99999999999"}, {"0 ", "2"}})
    EXPECT_EQ(launched_with({{"PMI_RANK", rank}, {"PMI_SIZE", ranks}}), std::nullopt) << rank << " of " << ranks;
  EXPECT_EQ(launched_with({{"PMI_SIZE", "2"}}), std::nullopt);
}

}  // namespace
}  // namespace protrain::comm::launch_test
