// The ABI of Open MPI. Handles are addresses inside its library.
#include "base/text.h"
#include "mpi/api.h"

namespace hvd::mpi {

const Abi& abi() {
  static const Abi kAbi{
      "Open MPI",    {"libmpi.so.40", "libmpi.so.80", "libmpi.so.20"},
      "libopenmpi3", "its mpirun, by srun --mpi=pmix, or by horovodrun where libpmix.so.2 is",
      true,          false};
  return kAbi;
}

Result<Handles> find_handles(const SharedLibrary& library) {
  SymbolFinder find(library);
  Handles handles;
  handles.world = find("ompi_mpi_comm_world");
  const char* const names[] = {"ompi_mpi_uint8_t",
                               "ompi_mpi_int8_t",
                               "ompi_mpi_uint16_t",
                               "ompi_mpi_int16_t",
                               "ompi_mpi_int32_t",
                               "ompi_mpi_int64_t",
                               nullptr,
                               "ompi_mpi_float",
                               "ompi_mpi_double",
                               "ompi_mpi_uint8_t",
                               nullptr,
                               "ompi_mpi_uint32_t",
                               "ompi_mpi_uint64_t"};
  for (size_t i = 0; i < std::size(names); ++i) {
    if (names[i] != nullptr) handles.types[i] = find(names[i]);
  }
  handles.sum = find("ompi_mpi_op_sum");
  handles.min = find("ompi_mpi_op_min");
  handles.max = find("ompi_mpi_op_max");
  handles.product = find("ompi_mpi_op_prod");
  handles.no_request = find("ompi_request_null");
  handles.errors_return = find("ompi_mpi_errors_return");
  handles.no_info = find("ompi_mpi_info_null");
  if (find.missing().empty()) return handles;
  return not_found(cat(library.path(), " is not Open MPI: it has no ", find.missing()));
}

}  // namespace hvd::mpi
