#include "collectives/kernels/half_conversion.h"

#include "base/half.h"

namespace hvd::collectives {

void to_float32(float* to, const void* from, int32_t dtype, size_t count) {
  const auto* in = static_cast<const uint16_t*>(from);
  if (dtype == HVD_FLOAT16) {
    for (size_t i = 0; i < count; ++i) to[i] = float_of_half(in[i]);
  } else {
    for (size_t i = 0; i < count; ++i) to[i] = float_of_bfloat(in[i]);
  }
}

void to_storage_type(void* to, const float* from, int32_t dtype, size_t count, const Scale& scale) {
  auto* out = static_cast<uint16_t*>(to);
  if (scale.is_inexact) {
    const auto divisor = static_cast<float>(scale.divisor);
    if (dtype == HVD_FLOAT16) {
      for (size_t i = 0; i < count; ++i) out[i] = half_of_float(from[i] / divisor);
    } else {
      for (size_t i = 0; i < count; ++i) out[i] = bfloat_of_float(from[i] / divisor);
    }
    return;
  }
  const float factor = scale.active ? static_cast<float>(scale.factor) : 1.0f;
  if (dtype == HVD_FLOAT16) {
    for (size_t i = 0; i < count; ++i) out[i] = half_of_float(from[i] * factor);
  } else {
    for (size_t i = 0; i < count; ++i) out[i] = bfloat_of_float(from[i] * factor);
  }
}

}  // namespace hvd::collectives
