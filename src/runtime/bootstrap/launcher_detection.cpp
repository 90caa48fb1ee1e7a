#include "runtime/bootstrap/launcher_detection.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd::runtime {
namespace {

// Variables that only foreign launchers set. The variables of PMIx are not among them: they lack the size, and this
// project's agents set them too. Open MPI and Slurm provide PMIx, and set variables of their own.
struct LauncherVariables {
  const char *launcher, *rank, *size;
  std::string_view bootstrap;
};
constexpr std::string_view kPmi = "pmi";
constexpr std::array kForeignLaunchers = {
    LauncherVariables{"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "pmix"},
    LauncherVariables{"a launcher with PMI", "PMI_RANK", "PMI_SIZE", kPmi},
    LauncherVariables{"MVAPICH's mpirun_rsh", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "mpi"},
    LauncherVariables{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "slurm"},
};

std::optional<int64_t> number_of(const char* variable) {
  const auto text = environment_variable(variable);
  return text ? parse_int(*text) : std::nullopt;
}

// Reads RANK and WORLD_SIZE, set by torchrun, accelerate, DeepSpeed, and scripts that call torch.distributed.
std::optional<ForeignPlace> place_in_process_group() {
  const auto size = number_of("WORLD_SIZE");
  if (!size || *size <= 1) return {};
  return ForeignPlace{
      is_worker_of_torchrun() ? "torchrun (RANK)" : "a launcher of torch.distributed (WORLD_SIZE)",
      number_of("RANK").value_or(-1), *size, std::string(kTorchBootstrap)};
}

bool has_terminal() {
  return static_cast<bool>(UniqueFd(::open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY)));
}

// Returns whether srun --mpi=pmi2 set PMI_RANK and PMI_SIZE, equal to its own variables. hydra also sets
// MPI_LOCALRANKID.
bool is_pmi_of_srun() {
  return !environment_variable("MPI_LOCALRANKID") &&
         number_of("PMI_RANK") == number_of("SLURM_PROCID") &&
         number_of("PMI_SIZE") == number_of("SLURM_STEP_NUM_TASKS");
}

bool is_shell(pid_t process) {
  constexpr std::array kShells = {"ash", "bash", "csh", "dash", "fish",
                                  "ksh", "mksh", "sh",  "tcsh", "zsh"};
  std::ifstream file(cat("/proc/", process, "/comm"));
  std::string name;
  std::getline(file, name);
  return std::find(kShells.begin(), kShells.end(), name) != kShells.end();
}

}  // namespace

bool is_worker_of_torchrun() { return environment_variable("TORCHELASTIC_RUN_ID").has_value(); }

bool is_in_shell_of_step() {
  if (!environment_variable("SLURM_PTY_PORT") || number_of("SLURM_PROCID") != 0) return false;
  if (is_worker_of_torchrun()) return false;
  // Open MPI's mpirun and MPICH's hydra set these variables; PRRTE sets its own namespace.
  if (environment_variable("OMPI_COMM_WORLD_RANK") || environment_variable("MPI_LOCALRANKID"))
    return false;
  const auto space = environment_variable("PMIX_NAMESPACE");
  if (space && !space->starts_with("slurm.")) return false;
  // A shell leads its terminal's session, and puts each of its jobs into a separate process group.
  const pid_t session = ::getsid(0);
  if (::getpgrp() == session) return false;
  return number_of("SLURM_TASK_PID") == session || (has_terminal() && is_shell(session));
}

std::optional<ForeignPlace> foreign_place() {
  // srun and mpirun may start torchrun once per host: use the inner launcher.
  if (is_worker_of_torchrun()) {
    if (auto place = place_in_process_group()) return place;
  }
  if (is_in_shell_of_step()) return {};
  for (const LauncherVariables& known : kForeignLaunchers) {
    const auto rank = number_of(known.rank);
    const auto size = number_of(known.size);
    if (known.bootstrap == kPmi && is_pmi_of_srun()) continue;
    if (rank && size && *size > 1) {
      return ForeignPlace{cat(known.launcher, " (", known.rank, ")"), *rank, *size,
                          std::string(known.bootstrap)};
    }
  }
  return place_in_process_group();
}

std::optional<ForeignPlace> place_among_several() {
  if (auto place = foreign_place()) return place;
  if (is_in_shell_of_step()) return {};
  if (const auto rank = number_of("PMI_ID");
      rank && (*rank > 0 || number_of("MPI_LOCALNRANKS").value_or(1) > 1)) {
    return ForeignPlace{"MPICH's hydra (PMI_ID)", *rank, -1, "mpi"};
  }
  if (const auto rank = number_of("PMIX_RANK"); rank && *rank > 0) {
    return ForeignPlace{"a launcher with PMIx (PMIX_RANK)", *rank, -1, "pmix"};
  }
  return {};
}

Status check_launchers(const WorkerSettings& settings, const Identity& identity) {
  const auto other = foreign_place();
  if (!other) return {};
  if (other->bootstrap == kTorchBootstrap) {
    // This project's agents and programs also set RANK and WORLD_SIZE, and HOROVOD_* variables override them. Several
    // workers of one torchrun share one rank's HOROVOD_* variables, so at most one worker's variables are right.
    const bool is_same = identity.rank == other->rank && identity.size == other->size &&
                         number_of("LOCAL_WORLD_SIZE").value_or(1) <= 1;
    if (is_same || !is_worker_of_torchrun() || settings.job.empty()) return {};
  }
  const std::string theirs = cat(other->launcher, " says rank ", other->rank, " of ", other->size);
  if (!settings.job.empty()) {
    return failed_precondition(cat("two launchers have started this process: horovodrun says rank ",
                                   identity.rank, " of ", identity.size, " and ", theirs,
                                   "; use one of them, or horovodrun --mpi"));
  }
  // Another launcher may have started the program (Ray, Spark) that runs Horovod's own rendezvous server.
  if (!settings.rendezvous_address.empty()) return {};
  if (settings.of_job.rank.has_value()) {
    if (identity.rank == other->rank && identity.size == other->size) return {};
    return failed_precondition(cat("HOROVOD_RANK and HOROVOD_SIZE say rank ", identity.rank, " of ",
                                   identity.size, ", but ", theirs,
                                   "; unset HOROVOD_RANK and HOROVOD_SIZE, or the variables of the "
                                   "other where it started a launcher of yours"));
  }
  if (identity.size == other->size) return {};
  return failed_precondition(cat("the rendezvous of HOROVOD_STORE has ", identity.size,
                                 " ranks, but ", theirs,
                                 "; start all ranks by one launcher, without HOROVOD_STORE"));
}

}  // namespace hvd::runtime
