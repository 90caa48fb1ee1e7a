// Sizes and names of the element types of horovod/types.h.
#pragma once

#include <cstddef>
#include <string_view>

#include "horovod/types.h"

namespace hvd {

constexpr int kDtypeCount = 13;

inline bool is_dtype(int dtype) { return dtype >= 0 && dtype < kDtypeCount; }

// Bytes of one element; 0 when it is none of ours.
size_t size_of(hvd_dtype dtype);
// "float32", "bfloat16", ...; "unknown" when it is none of ours.
std::string_view name_of(hvd_dtype dtype);
// "sum", "min", ...
std::string_view name_of(hvd_reduce_op op);

}  // namespace hvd
