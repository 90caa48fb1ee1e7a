#include "runtime/plugins/op_selector.h"

#include "runtime/wire/request.h"

namespace hvd::runtime {

size_t DeviceSupport::place(int32_t op, int32_t dtype, int32_t reduce_op, bool factors) {
  return ((static_cast<size_t>(op) * kDtypes + static_cast<size_t>(dtype)) * kReductions +
          static_cast<size_t>(reduce_op)) *
             2 +
         (factors ? 1 : 0);
}

DeviceSupport DeviceSupport::ask(const OpSelector& ops, int32_t size) {
  DeviceSupport found;
  for (int32_t op = 0; op < static_cast<int32_t>(kOpCount); ++op) {
    for (int32_t dtype = 0; dtype < static_cast<int32_t>(kDtypes); ++dtype) {
      for (int32_t reduce_op = 0; reduce_op < static_cast<int32_t>(kReductions); ++reduce_op) {
        for (const bool factors : {false, true}) {
          hvd_batch batch{};
          batch.struct_size = sizeof batch;
          batch.op = op;
          batch.reduce_op = reduce_op == HVD_AVERAGE ? static_cast<int32_t>(HVD_SUM) : reduce_op;
          batch.dtype = dtype;
          batch.prescale = factors ? 0.75 : 1;
          batch.postscale = reduce_op == HVD_AVERAGE ? 1.0 / size : 1;
          found.runs_[place(op, dtype, reduce_op, factors)] = ops.select(batch) != nullptr;
        }
      }
    }
  }
  return found;
}

bool DeviceSupport::has(int32_t op, int32_t dtype, int32_t reduce_op, double prescale,
                        double postscale) const {
  const auto is_below = [](int32_t number, size_t end) {
    return number >= 0 && static_cast<size_t>(number) < end;
  };
  if (!is_below(op, kOpCount) || !is_below(dtype, kDtypes)) return false;
  if (!reduces(op)) return runs_[place(op, dtype, HVD_SUM, false)];
  const auto is_one = [](double factor) { return factor == 1 || factor == 0; };
  return is_below(reduce_op, kReductions) &&
         runs_[place(op, dtype, reduce_op, !is_one(prescale) || !is_one(postscale))];
}

}  // namespace hvd::runtime
