// The ABI of MPICH, Intel MPI, Cray MPICH and MVAPICH. Handles are integers.
#include "base/text.h"
#include "mpi/api.h"

namespace hvd::mpi {

const Abi& abi() {
  static const Abi kAbi{
      "MPICH", {"libmpi.so.12", "libmpich.so.12"}, "libmpich12", "mpiexec.hydra", false, true};
  return kAbi;
}

Result<Handles> find_handles(const SharedLibrary& library) {
  if (library.symbol("ompi_mpi_comm_world") != nullptr) {
    return not_found(cat(library.path(), " is Open MPI and not MPICH or one of its kin"));
  }
  if (library.symbol("MPI_Init_thread") == nullptr) {
    return not_found(cat(library.path(), " is no library of MPI"));
  }
  return Handles{MPI_COMM_WORLD,
                 {MPI_UINT8_T, MPI_INT8_T, MPI_UINT16_T, MPI_INT16_T, MPI_INT32_T, MPI_INT64_T,
                  MPI_DATATYPE_NULL, MPI_FLOAT, MPI_DOUBLE, MPI_UINT8_T, MPI_DATATYPE_NULL,
                  MPI_UINT32_T, MPI_UINT64_T},
                 MPI_SUM,
                 MPI_MIN,
                 MPI_MAX,
                 MPI_PROD,
                 MPI_REQUEST_NULL,
                 MPI_ERRORS_RETURN,
                 MPI_INFO_NULL};
}

}  // namespace hvd::mpi
