// Sizes and names of the element types and reductions of horovod/types.h. Pure.
#pragma once

#include <cstddef>
#include <string_view>

#include "horovod/types.h"

namespace hvd {

constexpr int kDtypeCount = 13;

inline bool is_dtype(int dtype) { return dtype >= 0 && dtype < kDtypeCount; }

// Returns the size of one element in bytes; 0 for an unknown type.
size_t size_of(hvd_dtype dtype);
// Returns "float32", "bfloat16", ...; "unknown" for an unknown type.
std::string_view name_of(hvd_dtype dtype);
// Returns "sum", "min", ...
std::string_view name_of(hvd_reduce_op op);

}  // namespace hvd
