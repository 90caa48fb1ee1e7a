#include "collectives/reduction.h"

#include <cstring>

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

Unpacker::Unpacker(const hvd_batch& batch, size_t members, size_t index)
    : batch_(batch),
      element_(size_of(static_cast<hvd_dtype>(batch.dtype))),
      members_(members),
      index_(index) {}

Slice Unpacker::kept(const hvd_batch_tensor& tensor) const {
  const auto count = static_cast<size_t>(tensor.count);
  if (batch_.op != HVD_REDUCESCATTER) return {0, count};
  const auto row = static_cast<size_t>(tensor.row);
  if (row == 0) return {0, 0};
  const Slice rows = rows_of(count / row, members_, index_);
  return {rows.first * row, rows.count * row};
}

void Unpacker::write(const std::byte* from, size_t count) {
  while (count > 0) {
    const hvd_batch_tensor& tensor = batch_.tensors[tensor_];
    const size_t part = std::min(count, static_cast<size_t>(tensor.count) - offset_);
    const Slice keep = kept(tensor);
    const size_t first = std::max(offset_, keep.first);
    const size_t last = std::min(offset_ + part, keep.first + keep.count);
    if (first < last && tensor.output != nullptr) {
      std::memcpy(static_cast<std::byte*>(tensor.output) + (first - keep.first) * element_,
                  from + (first - offset_) * element_, (last - first) * element_);
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

Reduction::Reduction(const hvd_batch& batch, size_t members, size_t index)
    : reduce(reduce_function(static_cast<hvd_dtype>(batch.dtype),
                             static_cast<hvd_reduce_op>(batch.reduce_op))),
      before(scale_by(batch.prescale)),
      after(scale_by(batch.postscale)),
      none(scale_by(1.0)),
      element(size_of(static_cast<hvd_dtype>(batch.dtype))),
      count(0),
      packer(batch),
      unpacker(batch, members, index) {
  for (uint32_t i = 0; i < batch.tensor_count; ++i) {
    count += static_cast<size_t>(batch.tensors[i].count);
  }
}

}  // namespace hvd::collectives
