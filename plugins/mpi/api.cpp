#include "mpi/api.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/settings.h"
#include "base/text.h"

namespace hvd::mpi {
namespace {

constexpr int kTag = 4711;

struct Loaded {
  std::string open_mpi, mpich;  // paths; empty: not loaded
};

Loaded what_is_loaded() {
  Loaded loaded;
  for (const std::string& path : loaded_libraries("libmpi.so.")) {
    const bool is_mpich = path.find("libmpi.so.12") != std::string::npos;
    (is_mpich ? loaded.mpich : loaded.open_mpi) = path;
  }
  for (const std::string& path : loaded_libraries("libmpich.so.")) loaded.mpich = path;
  return loaded;
}

// Returns whether Horovod's bootstrap needs the PMI server. Slurm's mpi/pmi2 accepts only one init per process.
bool pmi_is_horovods() {
  const std::string named = to_lower(trim(environment_variable("HOROVOD_BOOTSTRAP").value_or("")));
  return environment_variable("SLURM_MPI_TYPE").value_or("") == "pmi2" && !mpi_is_initialised() &&
         (named.empty() || named == "pmi");
}

bool is_set(const char* variable) { return environment_variable(variable).has_value(); }

struct MpiLauncher {
  std::string_view family;  // empty: unknown
  const char* sign = nullptr;
};

// Returns the launcher that started this process, according to its variables.
MpiLauncher launcher() {
  for (const char* sign : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK"}) {
    if (is_set(sign)) return {"Open MPI", sign};
  }
  for (const char* sign : {"PMI_RANK", "PMI_FD", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_SIZE"}) {
    if (is_set(sign)) return {"MPICH", sign};
  }
  return {};
}

}  // namespace

void make_communicator(const MpiApi& api, const std::vector<int>& world_ranks, int32_t self,
                       const std::vector<int32_t>& members, MpiComm* to) {
  std::vector<int> ranks;
  ranks.reserve(members.size());
  for (const int32_t member : members) ranks.push_back(world_ranks[static_cast<size_t>(member)]);
  to->size = static_cast<int>(members.size());
  to->index = static_cast<int>(std::find(members.begin(), members.end(), self) - members.begin());
  MPI_Group world{}, group{};
  const bool made =
      api.comm_group(api.handles.world, &world) == MPI_SUCCESS &&
      api.group_incl(world, to->size, ranks.data(), &group) == MPI_SUCCESS &&
      api.comm_create_group(api.handles.world, group, kTag, &to->comm) == MPI_SUCCESS &&
      api.comm_set_errhandler(to->comm, api.handles.errors_return) == MPI_SUCCESS;
  if (made) {
    api.group_free(&group);
    api.group_free(&world);
  }
  to->state.store(made ? 1 : -1);
}

Result<MpiApi> open_api(const std::string& path) {
  const std::vector<std::string> paths =
      path.empty() ? abi().libraries : std::vector<std::string>{path};
  Status refusal;
  for (const std::string& one : paths) {
    // Export the symbols of the MPI library to the whole process, since MPI's own plugins look for them there.
    auto library = SharedLibrary::open_for_all(one);
    if (!library.ok()) {
      if (refusal.ok()) refusal = library.error();
      continue;
    }
    HVD_ASSIGN_OR_RETURN(Handles handles, find_handles(*library));
    MpiApi api{SymbolFinder(*library), std::move(handles)};
    if (api.find.missing().empty()) return api;
    return not_found(cat(one, " has no ", api.find.missing(), ": it is older than MPI 3"));
  }
  return refusal.with_context(cat(abi().family, " is not here (on Debian, ", abi().package,
                                  " brings it; HOROVOD_MPI_LIBRARY may name its library)"));
}

std::string wanted_library() {
  return std::string(trim(environment_variable("HOROVOD_MPI_LIBRARY").value_or("")));
}

bool launcher_has_several() {
  const char* const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS",
                               "MV2_COMM_WORLD_SIZE"};
  return std::any_of(std::begin(sizes), std::end(sizes), [](const char* size) {
    return parse_int(environment_variable(size).value_or("")).value_or(1) > 1;
  });
}

std::string why_apart() {
  const auto [family, sign] = launcher();
  if (sign == nullptr) return "no launcher of an MPI has started this rank";
  if (family != abi().family) {
    return cat("this rank was started by a launcher that serves ", family, " (", sign, " is set)");
  }
  return cat("this rank was started by a launcher that serves ", family, " (", sign,
             " is set), which has started only a part of the job, or whose library is another one");
}

Status judge_environment() {
  const std::string_view ours = abi().family;
  const Loaded loaded = what_is_loaded();
  if (!loaded.open_mpi.empty() && !loaded.mpich.empty()) {
    return failed_precondition(cat("two MPI implementations are in one process, ", loaded.open_mpi,
                                   " and ", loaded.mpich,
                                   ": build mpi4py and what else uses MPI for one of them"));
  }
  const std::string& own = ours == "Open MPI" ? loaded.open_mpi : loaded.mpich;
  const std::string& other = ours == "Open MPI" ? loaded.mpich : loaded.open_mpi;
  if (!other.empty()) {
    return failed_precondition(cat("this process uses ", other, " already, and a second MPI (",
                                   ours,
                                   ") next to it would be two MPI implementations in one process"));
  }
  if (ours == "MPICH" && pmi_is_horovods()) {
    return failed_precondition(
        "srun --mpi=pmi2 started this rank, by which MPICH cannot start after "
        "Horovod; set HOROVOD_BOOTSTRAP=mpi, so that it starts first, or use "
        "mpiexec.hydra, or Open MPI and srun --mpi=pmix");
  }
  const std::string wanted = wanted_library();
  if (!own.empty() && (wanted.empty() || wanted == own)) return {};
  const std::string_view served = launcher().family;
  if (wanted.empty() && !served.empty() && served != ours) {
    return failed_precondition(cat("this rank was started by a launcher that ", served,
                                   " belongs to, so ", ours, " would see a single-process job"));
  }
  Status refusal;
  for (const std::string& path :
       wanted.empty() ? abi().libraries : std::vector<std::string>{wanted}) {
    const Status status = SharedLibrary::try_open(
        path, [](const SharedLibrary& library) { return find_handles(library).status(); });
    if (status.ok()) return {};
    if (refusal.ok()) refusal = status;
  }
  return refusal.with_context(cat(ours,
                                  wanted.empty() ? " is not here; on Debian: apt install " : "",
                                  wanted.empty() ? abi().package : ""));
}

}  // namespace hvd::mpi
