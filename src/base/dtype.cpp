#include "base/dtype.h"

#include <array>

namespace hvd {
namespace {

struct DtypeInfo {
  size_t size;
  std::string_view name;
};

constexpr std::array<DtypeInfo, kDtypeCount> kEntries = {{{1, "uint8"},
                                                          {1, "int8"},
                                                          {2, "uint16"},
                                                          {2, "int16"},
                                                          {4, "int32"},
                                                          {8, "int64"},
                                                          {2, "float16"},
                                                          {4, "float32"},
                                                          {8, "float64"},
                                                          {1, "bool"},
                                                          {2, "bfloat16"},
                                                          {4, "uint32"},
                                                          {8, "uint64"}}};

}  // namespace

size_t size_of(hvd_dtype dtype) {
  return is_dtype(dtype) ? kEntries[static_cast<size_t>(dtype)].size : 0;
}

std::string_view name_of(hvd_dtype dtype) {
  return is_dtype(dtype) ? kEntries[static_cast<size_t>(dtype)].name : "unknown";
}

std::string_view name_of(hvd_reduce_op op) {
  switch (op) {
    case HVD_AVERAGE:
      return "average";
    case HVD_SUM:
      return "sum";
    case HVD_ADASUM:
      return "adasum";
    case HVD_MIN:
      return "min";
    case HVD_MAX:
      return "max";
    case HVD_PRODUCT:
      return "product";
  }
  return "unknown";
}

}  // namespace hvd
