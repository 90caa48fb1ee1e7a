#include "collectives/kernels/reduction.h"

#include <cstring>

#include "base/plugin_record.h"

namespace hvd::collectives {

Packer::Packer(const hvd_batch& batch)
    : batch_(batch), element_(size_of(static_cast<hvd_dtype>(batch.dtype))) {}

void Packer::read(std::byte* to, size_t count) {
  while (count > 0) {
    const hvd_batch_tensor& tensor = batch_.tensors[tensor_];
    const size_t part = std::min(count, static_cast<size_t>(tensor.count) - offset_);
    if (tensor.input == nullptr) {
      fill_neutral(to, static_cast<hvd_dtype>(batch_.dtype),
                   static_cast<hvd_reduce_op>(batch_.reduce_op), part);
    } else if (part > 0) {
      std::memcpy(to, static_cast<const std::byte*>(tensor.input) + offset_ * element_,
                  part * element_);
    }
    to += part * element_;
    count -= part;
    offset_ += part;
    if (offset_ == static_cast<size_t>(tensor.count)) {
      ++tensor_;
      offset_ = 0;
    }
  }
}

Unpacker::Unpacker(const hvd_batch& batch)
    : batch_(batch), element_(size_of(static_cast<hvd_dtype>(batch.dtype))) {}

void Unpacker::write(const std::byte* from, size_t count) {
  while (count > 0) {
    const hvd_batch_tensor& tensor = batch_.tensors[tensor_];
    const size_t part = std::min(count, static_cast<size_t>(tensor.count) - offset_);
    if (part > 0 && tensor.output != nullptr) {
      std::memcpy(static_cast<std::byte*>(tensor.output) + offset_ * element_, from,
                  part * element_);
    }
    from += part * element_;
    count -= part;
    offset_ += part;
    if (offset_ == static_cast<size_t>(tensor.count)) {
      ++tensor_;
      offset_ = 0;
    }
  }
}

Scale scale_before(const hvd_batch& batch) { return scale_by(batch.prescale); }

Scale scale_after(const hvd_batch& batch) {
  const int32_t divisor = field_of(batch, &hvd_batch::divisor);
  return divisor > 0 ? divide_by(divisor) : scale_by(batch.postscale);
}

Reduction::Reduction(const hvd_batch& batch)
    : reduce(reduce_function(static_cast<hvd_dtype>(batch.dtype),
                             static_cast<hvd_reduce_op>(batch.reduce_op))),
      before(scale_before(batch)),
      after(scale_after(batch)),
      none(scale_by(1.0)),
      element(size_of(static_cast<hvd_dtype>(batch.dtype))),
      count(0),
      packer(batch),
      unpacker(batch) {
  for (uint32_t i = 0; i < batch.tensor_count; ++i) {
    count += static_cast<size_t>(batch.tensors[i].count);
  }
}

}  // namespace hvd::collectives
