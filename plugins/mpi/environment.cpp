#include "mpi/environment.h"

#include <link.h>

#include <string_view>

#include "base/settings.h"
#include "base/text.h"
#include "mpi/api.h"

namespace hvd::mpi {
namespace {

struct Loaded {
  std::string open_mpi, mpich;  // paths; empty: not loaded
};

Loaded loaded_libraries() {
  Loaded loaded;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        auto* found = static_cast<Loaded*>(to);
        const std::string_view path(info->dlpi_name);
        const std::string_view name = path.substr(path.rfind('/') + 1);
        if (name.starts_with("libmpi.so.12") || name.starts_with("libmpich.so.")) {
          found->mpich = path;
        } else if (name.starts_with("libmpi.so.")) {
          found->open_mpi = path;
        }
        return 0;
      },
      &loaded);
  return loaded;
}

bool is_set(const char* variable) { return environment_variable(variable).has_value(); }

// The family whose launcher started this process; empty: none that is known.
std::string_view launcher_family() {
  if (is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMIX_RANK")) return "Open MPI";
  if (is_set("PMI_RANK") || is_set("PMI_FD") || is_set("MPI_LOCALNRANKS")) return "MPICH";
  return {};
}

}  // namespace

std::string wanted_library() {
  return std::string(trim(environment_variable("HOROVOD_MPI_LIBRARY").value_or("")));
}

Status judge_environment() {
  const std::string_view ours = abi().family;
  const Loaded loaded = loaded_libraries();
  if (!loaded.open_mpi.empty() && !loaded.mpich.empty()) {
    return failed_precondition(cat("two MPI implementations are in one process, ", loaded.open_mpi,
                                   " and ", loaded.mpich,
                                   ": build mpi4py and what else uses MPI for one of them"));
  }
  const std::string& own = ours == "Open MPI" ? loaded.open_mpi : loaded.mpich;
  const std::string& other = ours == "Open MPI" ? loaded.mpich : loaded.open_mpi;
  if (!other.empty()) {
    return failed_precondition(cat("this process uses ", other, " already, and a second MPI (", ours,
                                   ") beside it would be two MPI implementations in one process"));
  }
  const std::string wanted = wanted_library();
  if (!own.empty() && (wanted.empty() || wanted == own)) return {};
  // Slurm's mpi/pmi2 takes one beginning of a conversation, and Horovod's bootstrap has had it.
  if (ours == "MPICH" && environment_variable("SLURM_MPI_TYPE").value_or("") == "pmi2") {
    return failed_precondition("srun --mpi=pmi2 started this rank, by which MPICH cannot start beside "
                               "Horovod; use mpiexec.hydra, or Open MPI and srun --mpi=pmix");
  }
  const std::string_view launcher = launcher_family();
  if (wanted.empty() && !launcher.empty() && launcher != ours) {
    return failed_precondition(cat("this rank was started by a launcher that ", launcher,
                                   " belongs to, so ", ours, " would see a world of one"));
  }
  Status refusal;
  for (const std::string& path :
       wanted.empty() ? abi().libraries : std::vector<std::string>{wanted}) {
    const Status status = SharedLibrary::try_open(
        path, [](const SharedLibrary& library) { return find_handles(library).status(); });
    if (status.ok()) return {};
    if (refusal.ok()) refusal = status;
  }
  return refusal.with_context(cat(ours, wanted.empty() ? " is not here; on Debian: apt install " : "",
                                  wanted.empty() ? abi().package : ""));
}

}  // namespace hvd::mpi
