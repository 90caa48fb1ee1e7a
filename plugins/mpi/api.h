// The functions and handles of an MPI library that is opened at run time. The types come from its
// header; no MPI library is linked. Immutable once made.
#pragma once

#include <mpi.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/shared_library.h"
#include "base/status.h"

namespace hvd::mpi {

// The differences between the binary interfaces; each plugin contains one of the files abi_*.cpp.
struct Abi {
  const char* family;                  // "Open MPI", "MPICH"
  std::vector<std::string> libraries;  // names for the dynamic linker, the most usual first
  const char* package;                 // Debian package of this MPI
  const char* launchers;               // launchers of this MPI
  // True if large sums by messages between ranks are faster than MPI_Iallreduce, as measured
  // by tests/bench/backends.
  bool sums_by_slices;
  bool may_never_end;  // MPI_Finalize may hang with ranks on several hosts
};
const Abi& abi();

struct Handles {
  MPI_Comm world{};
  MPI_Datatype types[13]{};  // by hvd_dtype; Reductions creates the 16-bit types that MPI lacks
  MPI_Op sum{}, min{}, max{}, product{};
  MPI_Request no_request{};
  MPI_Errhandler errors_return{};
  MPI_Info no_info{};
};
// Returns kNotFound if the library has another ABI.
Result<Handles> find_handles(const SharedLibrary& library);

struct MpiApi {
  SymbolFinder find;
  Handles handles = {};
  std::string library = find.library().place();

  decltype(&MPI_Initialized) initialized = find("MPI_Initialized");
  decltype(&MPI_Finalized) finalized = find("MPI_Finalized");
  decltype(&MPI_Init_thread) init_thread = find("MPI_Init_thread");
  decltype(&MPI_Query_thread) query_thread = find("MPI_Query_thread");
  decltype(&MPI_Finalize) finalize = find("MPI_Finalize");
  decltype(&MPI_Get_library_version) get_library_version = find("MPI_Get_library_version");
  decltype(&MPI_Error_string) error_string = find("MPI_Error_string");
  decltype(&MPI_Comm_rank) comm_rank = find("MPI_Comm_rank");
  decltype(&MPI_Comm_size) comm_size = find("MPI_Comm_size");
  decltype(&MPI_Comm_group) comm_group = find("MPI_Comm_group");
  decltype(&MPI_Group_incl) group_incl = find("MPI_Group_incl");
  decltype(&MPI_Group_free) group_free = find("MPI_Group_free");
  decltype(&MPI_Comm_create_group) comm_create_group = find("MPI_Comm_create_group");
  decltype(&MPI_Comm_set_errhandler) comm_set_errhandler = find("MPI_Comm_set_errhandler");
  decltype(&MPI_Comm_idup) comm_idup = find("MPI_Comm_idup");
  decltype(&MPI_Comm_split_type) comm_split_type = find("MPI_Comm_split_type");
  decltype(&MPI_Comm_free) comm_free = find("MPI_Comm_free");
  decltype(&MPI_Type_contiguous) type_contiguous = find("MPI_Type_contiguous");
  decltype(&MPI_Type_commit) type_commit = find("MPI_Type_commit");
  decltype(&MPI_Type_free) type_free = find("MPI_Type_free");
  decltype(&MPI_Op_create) op_create = find("MPI_Op_create");
  decltype(&MPI_Op_free) op_free = find("MPI_Op_free");
  decltype(&MPI_Iallreduce) iallreduce = find("MPI_Iallreduce");
  decltype(&MPI_Ireduce_scatter) ireduce_scatter = find("MPI_Ireduce_scatter");
  decltype(&MPI_Iallgatherv) iallgatherv = find("MPI_Iallgatherv");
  decltype(&MPI_Ibcast) ibcast = find("MPI_Ibcast");
  decltype(&MPI_Isend) isend = find("MPI_Isend");
  decltype(&MPI_Irecv) irecv = find("MPI_Irecv");
  decltype(&MPI_Iprobe) iprobe = find("MPI_Iprobe");
  decltype(&MPI_Get_count) get_count = find("MPI_Get_count");
  decltype(&MPI_Testall) testall = find("MPI_Testall");
};

// Opens the library at `path`; if `path` is empty, the first usual library that loads.
Result<MpiApi> open_api(const std::string& path);

// An MPI communicator of some of a job's ranks. One thread creates the communicator while other threads poll `state`.
// The owner frees `comm`.
struct MpiComm {
  MPI_Comm comm{};
  int index = 0, size = 0;
  std::atomic<int> state{0};  // 0: not complete, 1: complete, -1: failed
};

// Creates a communicator. Blocks until all members have called this function. `members`: ascending ranks of the job.
// `world_ranks`: the number of each rank of the job in MPI_COMM_WORLD.
void make_communicator(const MpiApi& api, const std::vector<int>& world_ranks, int32_t self,
                       const std::vector<int32_t>& members, MpiComm* to);

// Returns the value of HOROVOD_MPI_LIBRARY, or empty.
std::string wanted_library();

// Returns whether an MPI launcher has started several processes, according to its variables.
bool launcher_has_several();

// Returns the reason, if known, why the ranks of one job might not share one MPI_COMM_WORLD. Call this
// before MPI starts: without a launcher, Open MPI sets the launcher's variables itself.
std::string why_apart();

// Returns an error if the loaded libraries, the launcher or the user's settings show that this process needs another
// MPI than the plugin's. Keeps no library loaded.
Status judge_environment();

}  // namespace hvd::mpi
