#include "mpi/api.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::mpi {
namespace {

constexpr int kTag = 4711;

template <typename Function>
void find(const SharedLibrary& library, const char* name, Function* function,
          std::string* missing) {
  *function = reinterpret_cast<Function>(library.symbol(name));
  if (*function == nullptr) *missing = name;
}

Status find_functions(const SharedLibrary& library, MpiApi* api) {
  std::string missing;
  find(library, "MPI_Initialized", &api->initialized, &missing);
  find(library, "MPI_Finalized", &api->finalized, &missing);
  find(library, "MPI_Init_thread", &api->init_thread, &missing);
  find(library, "MPI_Query_thread", &api->query_thread, &missing);
  find(library, "MPI_Finalize", &api->finalize, &missing);
  find(library, "MPI_Get_library_version", &api->get_library_version, &missing);
  find(library, "MPI_Error_string", &api->error_string, &missing);
  find(library, "MPI_Comm_rank", &api->comm_rank, &missing);
  find(library, "MPI_Comm_size", &api->comm_size, &missing);
  find(library, "MPI_Comm_group", &api->comm_group, &missing);
  find(library, "MPI_Group_incl", &api->group_incl, &missing);
  find(library, "MPI_Group_free", &api->group_free, &missing);
  find(library, "MPI_Comm_create_group", &api->comm_create_group, &missing);
  find(library, "MPI_Comm_set_errhandler", &api->comm_set_errhandler, &missing);
  find(library, "MPI_Comm_idup", &api->comm_idup, &missing);
  find(library, "MPI_Comm_split_type", &api->comm_split_type, &missing);
  find(library, "MPI_Comm_free", &api->comm_free, &missing);
  find(library, "MPI_Type_contiguous", &api->type_contiguous, &missing);
  find(library, "MPI_Type_commit", &api->type_commit, &missing);
  find(library, "MPI_Op_create", &api->op_create, &missing);
  find(library, "MPI_Type_free", &api->type_free, &missing);
  find(library, "MPI_Op_free", &api->op_free, &missing);
  find(library, "MPI_Iallreduce", &api->iallreduce, &missing);
  find(library, "MPI_Ireduce_scatter", &api->ireduce_scatter, &missing);
  find(library, "MPI_Iallgatherv", &api->iallgatherv, &missing);
  find(library, "MPI_Ibcast", &api->ibcast, &missing);
  find(library, "MPI_Isend", &api->isend, &missing);
  find(library, "MPI_Irecv", &api->irecv, &missing);
  find(library, "MPI_Iprobe", &api->iprobe, &missing);
  find(library, "MPI_Get_count", &api->get_count, &missing);
  find(library, "MPI_Testall", &api->testall, &missing);
  if (missing.empty()) return {};
  return not_found(cat(library.path(), " has no ", missing, ": it is older than MPI 3"));
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
    MpiApi api;
    api.library = library->place();
    HVD_ASSIGN_OR_RETURN(api.handles, find_handles(*library));
    HVD_RETURN_IF_ERROR(find_functions(*library, &api));
    return api;
  }
  return refusal.with_context(cat(abi().family, " is not here (on Debian, ", abi().package,
                                  " brings it; HOROVOD_MPI_LIBRARY may name its library)"));
}

}  // namespace hvd::mpi
