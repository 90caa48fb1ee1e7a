// The tensors of a batch as one long vector of bytes, traversed in pieces from its start to its end. Packing or
// unpacking a batch is such a walk, without a fusion buffer. Owns no memory. Any thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "collectives/kernels/reduce_kernels.h"
#include "horovod/plugin_op.h"

namespace hvd::collectives {

// A part of a tensor. `data` is null if this rank has no memory for it.
struct Piece {
  std::byte* data;
  size_t size;
};

// Walks the pieces that `piece_of(tensor)` yields for each tensor.
template <typename PieceOf>
class Walk {
 public:
  Walk(std::span<const hvd_batch_tensor> tensors, PieceOf piece_of)
      : tensors_(tensors), piece_of_(piece_of) {}

  // Advances by `size` bytes, and calls use(data or null, size of the part) for each part.
  template <typename Use>
  void next(size_t size, Use&& use) {
    while (size > 0 && index_ < tensors_.size()) {
      const Piece piece = piece_of_(tensors_[index_]);
      const size_t part = size < piece.size - offset_ ? size : piece.size - offset_;
      if (part > 0) use(piece.data == nullptr ? nullptr : piece.data + offset_, part);
      offset_ += part;
      size -= part;
      if (offset_ == piece.size) {
        ++index_;
        offset_ = 0;
      }
    }
  }
  // Copy the next `size` bytes to or from contiguous memory. A part without memory reads as zeros.
  void read(void* to, size_t size) {
    auto* out = static_cast<std::byte*>(to);
    next(size, [&](const std::byte* data, size_t part) {
      if (data != nullptr)
        std::memcpy(out, data, part);
      else
        std::memset(out, 0, part);
      out += part;
    });
  }
  void write(const void* from, size_t size) {
    const auto* in = static_cast<const std::byte*>(from);
    next(size, [&](std::byte* data, size_t part) {
      if (data != nullptr && data != in) std::memcpy(data, in, part);
      in += part;
    });
  }
  void skip(size_t size) {
    next(size, [](std::byte*, size_t) {});
  }

 private:
  std::span<const hvd_batch_tensor> tensors_;
  PieceOf piece_of_;
  size_t index_ = 0;
  size_t offset_ = 0;
};

// The `piece_of` for a Walk over all inputs.
struct WholeInput {
  size_t element;
  Piece operator()(const hvd_batch_tensor& tensor) const {
    // The const_cast is safe: a walk over inputs only reads.
    return {static_cast<std::byte*>(const_cast<void*>(tensor.input)),
            static_cast<size_t>(tensor.count) * element};
  }
};

// A walk by elements that yields the tensor itself, since a reduction needs the tensor's input and output.
class Cursor {
 public:
  explicit Cursor(std::span<const hvd_batch_tensor> tensors) : tensors_(tensors) {}

  // Advances by `count` elements, and calls use(tensor, first element, number) for each part.
  template <typename Use>
  void next(size_t count, Use&& use) {
    while (count > 0 && index_ < tensors_.size()) {
      const hvd_batch_tensor& tensor = tensors_[index_];
      const size_t left = static_cast<size_t>(tensor.count) - offset_;
      const size_t part = count < left ? count : left;
      if (part > 0) use(tensor, offset_, part);
      offset_ += part;
      count -= part;
      if (part == left) {
        ++index_;
        offset_ = 0;
      }
    }
  }
  void skip(size_t count) {
    next(count, [](const hvd_batch_tensor&, size_t, size_t) {});
  }

 private:
  std::span<const hvd_batch_tensor> tensors_;
  size_t index_ = 0;
  size_t offset_ = 0;
};

}  // namespace hvd::collectives
