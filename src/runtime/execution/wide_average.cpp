#include "runtime/execution/wide_average.h"

#include <algorithm>
#include <limits>
#include <new>
#include <type_traits>

#include "base/text.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {
namespace {

// Calls use(narrow type, wide type); does nothing for types without a wide type.
template <typename Use>
void with_types(int32_t dtype, Use&& use) {
  switch (dtype) {
    case HVD_UINT8:
      return use(uint8_t{}, int32_t{});
    case HVD_INT8:
      return use(int8_t{}, int32_t{});
    case HVD_UINT16:
      return use(uint16_t{}, int64_t{});
    case HVD_INT16:
      return use(int16_t{}, int64_t{});
    case HVD_UINT32:
      return use(uint32_t{}, int64_t{});
    case HVD_INT32:
      return use(int32_t{}, int64_t{});
    default:
      return;
  }
}

}  // namespace

int32_t sum_type_of_average(int32_t dtype) {
  int32_t wide = dtype;
  with_types(dtype, [&]<typename Narrow, typename Wide>(Narrow, Wide) {
    wide = std::is_same_v<Wide, int32_t> ? HVD_INT32 : HVD_INT64;
  });
  return wide;
}

Status WideAverage::widen(int32_t dtype, int32_t wide, std::span<const int64_t> kept,
                          std::span<hvd_batch_tensor> tensors) {
  dtype_ = dtype;
  size_t bytes = 0;
  const auto size_in_wide = [&](int64_t count) {
    return static_cast<size_t>(count) * dtype_size(wide);
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    bytes += size_in_wide(tensors[i].count + kept[i]);
  }
  memory_.reset(new (std::nothrow) std::byte[bytes + 1]);
  if (memory_ == nullptr) {
    return internal_error(cat("there is no memory for the ", bytes,
                              " bytes in which an average of ", dtype_name(dtype), " is summed"));
  }
  std::byte* next = memory_.get();
  for (size_t i = 0; i < tensors.size(); ++i) {
    hvd_batch_tensor& tensor = tensors[i];
    if (tensor.input != nullptr) {
      with_types(dtype, [&]<typename Narrow, typename Wide>(Narrow, Wide) {
        std::copy_n(static_cast<const Narrow*>(tensor.input), tensor.count,
                    reinterpret_cast<Wide*>(next));
      });
      tensor.input = next;
    }
    next += size_in_wide(tensor.count);
    if (tensor.output != nullptr) {
      results_.push_back({next, tensor.output, kept[i]});
      tensor.output = next;
    }
    next += size_in_wide(kept[i]);
  }
  return {};
}

void WideAverage::narrow() {
  with_types(dtype_, [&]<typename Narrow, typename Wide>(Narrow, Wide) {
    constexpr auto kLowest = static_cast<Wide>(std::numeric_limits<Narrow>::lowest());
    constexpr auto kHighest = static_cast<Wide>(std::numeric_limits<Narrow>::max());
    for (const WideResult& result : results_) {
      std::transform(reinterpret_cast<const Wide*>(result.wide),
                     reinterpret_cast<const Wide*>(result.wide) + result.count,
                     static_cast<Narrow*>(result.output), [&](Wide value) {
                       return static_cast<Narrow>(std::clamp(value, kLowest, kHighest));
                     });
    }
  });
  results_.clear();
  memory_.reset();
}

}  // namespace hvd::runtime
