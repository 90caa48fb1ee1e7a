#include "launcher/protocol/other_launchers.h"

#include <algorithm>
#include <array>

namespace hvd::launcher {
namespace {

constexpr std::array<std::string_view, 43> kOtherLaunchers = {"OMPI_COMM_WORLD_*",
                                                              "OMPI_UNIVERSE_SIZE",
                                                              "OMPI_APP_CTX_NUM_PROCS",
                                                              "OMPI_ARGV",
                                                              "OMPI_COMMAND",
                                                              "OMPI_FILE_LOCATION",
                                                              "OMPI_FIRST_RANKS",
                                                              "OMPI_NUM_APP_CTX",
                                                              "OMPI_MCA_orte_*",
                                                              "OMPI_MCA_schizo",
                                                              "OMPI_MCA_ess*",
                                                              "PRTE_MCA_*",
                                                              "PMI_*",
                                                              "PMI2_*",
                                                              "PMIX_*",
                                                              "MPI_LOCALRANKID",
                                                              "MPI_LOCALNRANKS",
                                                              "HYDI_*",
                                                              "MV2_COMM_WORLD_*",
                                                              "SLURM_PROCID",
                                                              "SLURM_LOCALID",
                                                              "SLURM_NODEID",
                                                              "SLURM_NTASKS",
                                                              "SLURM_NPROCS",
                                                              "SLURM_NTASKS_PER_NODE",
                                                              "SLURM_STEP_*",
                                                              "SLURM_STEPID",
                                                              "SLURM_GTIDS",
                                                              "SLURM_TASK_PID",
                                                              "SLURM_PMIX*",
                                                              "SLURM_PMI2_*",
                                                              "SLURM_SRUN_COMM_*",
                                                              "SLURM_LAUNCH_NODE_IPADDR",
                                                              "SLURM_CPU_BIND*",
                                                              "JSM_NAMESPACE_*",
                                                              "ALPS_APP_*",
                                                              "PALS_*",
                                                              "FLUX_TASK_*",
                                                              "FLUX_KVS_NAMESPACE",
                                                              "TORCHELASTIC_*",
                                                              "GROUP_WORLD_SIZE",
                                                              "ROLE_RANK",
                                                              "ROLE_WORLD_SIZE"};

}  // namespace

bool fits(std::string_view name, std::string_view pattern) {
  if (!pattern.ends_with('*')) return name == pattern;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

bool is_of_other_launcher(std::string_view name) {
  if (name == "SLURM_STEP_GPUS") return false;  // describes the node, not a rank
  return std::any_of(kOtherLaunchers.begin(), kOtherLaunchers.end(),
                     [&](std::string_view pattern) { return fits(name, pattern); });
}

}  // namespace hvd::launcher
