#include "ops/mpi/reductions.h"

#include <algorithm>

#include "collectives/kernels/reduce_kernels.h"

namespace hvd::ops::mpi {
namespace {

template <hvd_dtype Type, hvd_reduce_op Op>
void reduce(void* in, void* in_out, int* count, MPI_Datatype*) {
  const void* const inputs[] = {in, in_out};
  collectives::reduce_function(Type, Op)(in_out, inputs, 2, static_cast<size_t>(*count), {}, {});
}

template <hvd_dtype Type>
int teach(const MpiApi& api, MPI_Op* operations) {
  const int commutes = 1;
  return std::max({api.op_create(&reduce<Type, HVD_SUM>, commutes, &operations[HVD_SUM]),
                   api.op_create(&reduce<Type, HVD_MIN>, commutes, &operations[HVD_MIN]),
                   api.op_create(&reduce<Type, HVD_MAX>, commutes, &operations[HVD_MAX]),
                   api.op_create(&reduce<Type, HVD_PRODUCT>, commutes, &operations[HVD_PRODUCT])});
}

}  // namespace

Result<Reductions> Reductions::make(const MpiApi& api) {
  Reductions made;
  std::copy(std::begin(api.handles.types), std::end(api.handles.types), made.types_);
  int failed = MPI_SUCCESS;
  for (const hvd_dtype dtype : {HVD_FLOAT16, HVD_BFLOAT16}) {
    failed |= api.type_contiguous(2, api.handles.types[HVD_UINT8], &made.types_[dtype]);
    failed |= api.type_commit(&made.types_[dtype]);
  }
  failed |= teach<HVD_FLOAT16>(api, made.half_[0]) | teach<HVD_BFLOAT16>(api, made.half_[1]);
  if (failed != MPI_SUCCESS) return internal_error("MPI refuses types and operations of 16 bits");
  made.plain_[HVD_SUM] = api.handles.sum;
  made.plain_[HVD_MIN] = api.handles.min;
  made.plain_[HVD_MAX] = api.handles.max;
  made.plain_[HVD_PRODUCT] = api.handles.product;
  return made;
}

void Reductions::give_back(const MpiApi& api) {
  for (const hvd_dtype dtype : {HVD_FLOAT16, HVD_BFLOAT16}) api.type_free(&types_[dtype]);
  for (auto& operations : half_) {
    for (const hvd_reduce_op op : {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT}) {
      api.op_free(&operations[op]);
    }
  }
}

MPI_Op Reductions::operation(int32_t dtype, int32_t reduce_op) const {
  if (dtype == HVD_FLOAT16) return half_[0][reduce_op];
  if (dtype == HVD_BFLOAT16) return half_[1][reduce_op];
  // A bool is 0 or 1: any is the greatest, all the least.
  if (dtype == HVD_BOOL && reduce_op == HVD_SUM) return plain_[HVD_MAX];
  if (dtype == HVD_BOOL && reduce_op == HVD_PRODUCT) return plain_[HVD_MIN];
  return plain_[reduce_op];
}

}  // namespace hvd::ops::mpi
