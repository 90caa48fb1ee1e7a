// MPI's handle of each element type and reduction. Registers types and operations that MPI lacks as user-defined
// ones: float16 and bfloat16, and the minima and maxima of float32 and float64, of which a NaN must be the result. World owns it; batches read it.
#pragma once

#include "horovod/types.h"
#include "mpi/api.h"

namespace hvd::ops::mpi {

using hvd::mpi::MpiApi;

class Reductions {
 public:
  // Call after MPI_Init.
  static Result<Reductions> make(const MpiApi& api);
  // Frees the user-defined types and operations. Call after the last use and before MPI_Finalize.
  void give_back(const MpiApi& api);

  MPI_Datatype type(int32_t dtype) const { return types_[dtype]; }
  MPI_Op operation(int32_t dtype, int32_t reduce_op) const;

 private:
  MPI_Datatype types_[13]{};
  MPI_Op plain_[6]{};  // by hvd_reduce_op
  // By type and hvd_reduce_op: the user-defined ones.
  MPI_Op own_[13][6]{};
};

}  // namespace hvd::ops::mpi
