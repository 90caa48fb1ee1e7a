#include "mpi/api.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::mpi {
namespace {

constexpr int kTag = 4711;

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

}  // namespace hvd::mpi
