// MPI's name for each element type and reduction; what MPI does not know itself is taught to it.
#pragma once

#include "horovod/types.h"
#include "mpi/api.h"

namespace hvd::ops::mpi {

using hvd::mpi::Api;

class Reductions {
 public:
  // After MPI was initialised.
  static Result<Reductions> make(const Api& api);
  // Nothing uses it any more, and MPI is not finalized yet.
  void give_back(const Api& api);

  MPI_Datatype type(int32_t dtype) const { return types_[dtype]; }
  MPI_Op operation(int32_t dtype, int32_t reduce_op) const;

 private:
  MPI_Datatype types_[13]{};
  MPI_Op plain_[6]{};    // by hvd_reduce_op
  MPI_Op half_[2][6]{};  // float16, bfloat16
};

}  // namespace hvd::ops::mpi
