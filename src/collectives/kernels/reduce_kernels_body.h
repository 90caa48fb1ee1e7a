// The loops of the reduce kernels, compiled once per instruction set: the including source opens
// the namespace of its variant. Everything here has internal linkage and uses no library code, so
// that instructions of one variant never leak into functions that others share.

struct Truth {
  uint8_t bits;
};

// The arithmetic of one element type. Signed integers wrap around like unsigned integers.
template <typename T, typename Arithmetic, bool kSigned>
struct IntegerElement {
  using Storage = T;
  using Output = T;
  using Value = T;
  static constexpr bool kDirect = true;
  static constexpr bool kConvertsBlocks = false;
  static constexpr bool kScalesInPassing = false;  // a division per element prevents vectorization
  static constexpr bool kDividesInPassing = false;
  static constexpr bool kIsFloat = false;
  static inline T load(T value) { return value; }
  static inline T store(T value) { return value; }
  static inline T with_one_nan(T value) { return value; }
  static inline T sum(T a, T b) {
    return static_cast<T>(static_cast<Arithmetic>(a) + static_cast<Arithmetic>(b));
  }
  static inline T product(T a, T b) {
    return static_cast<T>(static_cast<Arithmetic>(a) * static_cast<Arithmetic>(b));
  }
  static inline T min(T a, T b) { return a < b ? a : b; }
  static inline T max(T a, T b) { return a < b ? b : a; }
  static constexpr T kLowest =
      kSigned ? static_cast<T>(Arithmetic{1} << (sizeof(T) * 8 - 1)) : T{0};
  static constexpr T kHighest = kSigned ? static_cast<T>(~(Arithmetic{1} << (sizeof(T) * 8 - 1)))
                                        : static_cast<T>(~Arithmetic{0});
  static inline T scale(T value, const Scale& scale) {
    if (scale.divisor > 0) return divide(value, scale.divisor);
    const double scaled = static_cast<double>(value) * scale.factor;
    if (!(scaled > static_cast<double>(kLowest))) return scaled == scaled ? kLowest : T{0};
    if (scaled >= static_cast<double>(kHighest)) return kHighest;
    return static_cast<T>(scaled);
  }
  static inline T divide(T value, int64_t divisor) {
    if constexpr (kSigned) return static_cast<T>(static_cast<int64_t>(value) / divisor);
    return static_cast<T>(static_cast<uint64_t>(value) / static_cast<uint64_t>(divisor));
  }
};

inline float without_payload(float value) { return value == value ? value : __builtin_nanf(""); }
inline double without_payload(double value) { return value == value ? value : __builtin_nan(""); }
inline uint32_t raw_bits(float value) { return __builtin_bit_cast(uint32_t, value); }
inline uint64_t raw_bits(double value) { return __builtin_bit_cast(uint64_t, value); }

// scale() also serves divisors with an exact inverse. A NaN in any input makes the result NaN. All NaNs get the same
// bits: a processor keeps the payload of one operand, and compilers may swap the operands. Minima and maxima do not
// depend on the order either: -0 is below +0.
template <typename T>
struct FloatElement {
  using Storage = T;
  using Output = T;
  using Value = T;
  static constexpr bool kDirect = true;
  static constexpr bool kConvertsBlocks = false;
  static constexpr bool kScalesInPassing = true;
  static constexpr bool kDividesInPassing = sizeof(T) == sizeof(float);
  static constexpr bool kIsFloat = true;
  static inline T load(T value) { return value; }
  static inline T store(T value) { return value; }
  static inline T with_one_nan(T value) { return without_payload(value); }
  static inline T sum(T a, T b) { return a + b; }
  static inline T product(T a, T b) { return a * b; }
  // If a or b is NaN, or both are zeros, one comparison yields b and the other yields a. The OR of both is then a NaN
  // or, for zeros, -0 if a or b is -0.
  static inline T min(T a, T b) {
    return __builtin_bit_cast(T, raw_bits(a < b ? a : b) | raw_bits(b < a ? b : a));
  }
  static inline T max(T a, T b) {
    const T greater = __builtin_bit_cast(T, raw_bits(a > b ? a : b) & raw_bits(b > a ? b : a));
    return a == a && b == b ? greater : a + b;
  }
  static inline T scale(T value, const Scale& scale) {
    return value * static_cast<T>(scale.factor);
  }
  static inline T divide(T value, const Scale& scale) {
    return value / static_cast<T>(scale.divisor);
  }
};

struct HalfElement : FloatElement<float> {
  using Storage = Half;
  using Output = Half;
  static constexpr bool kDirect = false;
  static constexpr bool kConvertsBlocks = kConvertsHalves;
  static inline float load(Half value) { return float_of_half(value.bits); }
  static inline Half store(float value) { return {half_of_float(value)}; }
  static inline float with_one_nan(float value) { return value; }  // store() makes one NaN
};

struct BFloat16Element : FloatElement<float> {
  using Storage = BFloat16Bits;
  using Output = BFloat16Bits;
  static constexpr bool kDirect = false;
  static inline float load(BFloat16Bits value) { return float_of_bfloat(value.bits); }
  static inline BFloat16Bits store(float value) { return {bfloat_of_float(value)}; }
  static inline float with_one_nan(float value) { return value; }  // store() makes one NaN
};

// A part of a half-precision sum: the result stays in float32.
template <typename E>
struct PartOf : E {
  using Output = float;
  static inline float store(float value) { return value; }
  static inline float with_one_nan(float value) { return without_payload(value); }
};

// The arithmetic of booleans: sum and max are OR, product and min are AND; scales have no effect.
struct TruthElement {
  using Storage = Truth;
  using Output = Truth;
  using Value = uint8_t;
  static constexpr bool kDirect = false;
  static constexpr bool kConvertsBlocks = false;
  static constexpr bool kIsFloat = false;
  static inline uint8_t load(Truth value) { return value.bits != 0 ? 1 : 0; }
  static inline Truth store(uint8_t value) { return {value}; }
  static inline uint8_t with_one_nan(uint8_t value) { return value; }
  static inline uint8_t sum(uint8_t a, uint8_t b) { return a | b; }
  static inline uint8_t product(uint8_t a, uint8_t b) { return a & b; }
  static inline uint8_t min(uint8_t a, uint8_t b) { return a & b; }
  static inline uint8_t max(uint8_t a, uint8_t b) { return a | b; }
  static inline uint8_t scale(uint8_t value, const Scale&) { return value; }
};

template <typename E, int kOp>
inline typename E::Value combine(typename E::Value a, typename E::Value b) {
  if constexpr (kOp == HVD_SUM) return E::sum(a, b);
  if constexpr (kOp == HVD_MIN) return E::min(a, b);
  if constexpr (kOp == HVD_MAX) return E::max(a, b);
  if constexpr (kOp == HVD_PRODUCT) return E::product(a, b);
}

// Divides a block of sums into `out`, which does not overlap the block.
//
// For float16 and bfloat16, a product and a fused multiply-add are cheaper than a float32 division and give the same
// bits. The inverse of n is split into two float32 values: `high`, which is below the inverse, and a positive `low`, so
// that an infinite sum stays infinite. The error is 2^-47 of the quotient, and no quotient lies so close to the
// midpoint of two float32 values (see below). A subnormal float32 quotient may differ, but the result does not: the sum
// is a multiple of the smallest bfloat16, so the quotient is either the midpoint of two bfloat16 values, which the
// operations return exactly, or far from any midpoint.
template <typename E>
inline void store_quotients(typename E::Output* __restrict out,
                            const typename E::Value* __restrict sums, size_t count,
                            const Scale by) {
  if constexpr (kFusesMultiplyAdd && !E::kDirect) {
    float high = static_cast<float>(by.factor);
    if (static_cast<double>(high) > by.factor) high -= high * 0x1p-24f;
    const float low = static_cast<float>(by.factor - static_cast<double>(high));
    for (size_t i = 0; i < count; ++i) {
      out[i] = E::store(__builtin_fmaf(sums[i], high, sums[i] * low));
    }
    return;
  }
  for (size_t i = 0; i < count; ++i) out[i] = E::store(E::divide(sums[i], by));
}

inline bool is_normal(double value) { return __builtin_fabs(value) >= 0x1p-1022; }

// A vector division of float64 takes several times as long as a product with the inverse and one
// correction, which give the same bits. The divisor n is a small integer, so the remainder x - q n
// is exact, and x / n is a float64 or so far from a midpoint that the correction's error does not
// cross it. (A midpoint would be a product of n's odd part and an odd number of 54 bits.) Subnormal
// quotients may be midpoints, and an infinity has no remainder: blocks with such quotients are
// divided, as are all blocks without an FMA instruction.
template <>
inline void store_quotients<FloatElement<double>>(double* __restrict out,
                                                  const double* __restrict sums, size_t count,
                                                  const Scale by) {
  const double divisor = static_cast<double>(by.divisor);
  [[maybe_unused]] const double inverse = by.factor;
  if constexpr (kFusesMultiplyAdd) {
    uint64_t unusual = 0;
    for (size_t i = 0; i < count; ++i) {
      const double close = sums[i] * inverse;
      const double excess = __builtin_fma(close, divisor, -sums[i]);
      out[i] = __builtin_fma(excess, -inverse, close);  // a zero keeps its sign in this form
      unusual |= is_normal(out[i]) ? 0 : ~uint64_t{0};
    }
    if (unusual == 0) return;
    unusual = 0;
    // A zero quotient is correct, and frequent.
    for (size_t i = 0; i < count; ++i) {
      unusual |= is_normal(out[i]) || out[i] == 0 ? 0 : ~uint64_t{0};
    }
    if (unusual == 0) return;
  }
  for (size_t i = 0; i < count; ++i) out[i] = without_payload(sums[i] / divisor);
}

// The scaling after the reduction.
enum class Finish { kNothing, kScale, kDivide };

// The usual case, also for averages of gradients: two inputs without a prescale do not need the
// block buffer below. The result does not overlap the inputs, or is one of them.
template <typename E, int kOp, Finish kFinish>
inline typename E::Value combine_two(typename E::Value a, typename E::Value b, const Scale& after) {
  typename E::Value result = combine<E, kOp>(a, b);
  if constexpr (kFinish == Finish::kScale) result = E::scale(result, after);
  if constexpr (kFinish == Finish::kDivide) result = E::divide(result, after);
  return E::store(E::with_one_nan(result));
}
template <typename E, int kOp, Finish kFinish>
void reduce_apart(typename E::Storage* __restrict result, const typename E::Storage* __restrict a,
                  const typename E::Storage* __restrict b, size_t count, Scale after) {
  for (size_t i = 0; i < count; ++i) result[i] = combine_two<E, kOp, kFinish>(a[i], b[i], after);
}
template <typename E, int kOp, Finish kFinish>
void reduce_into_first(typename E::Storage* __restrict a, const typename E::Storage* __restrict b,
                       size_t count, Scale after) {
  for (size_t i = 0; i < count; ++i) a[i] = combine_two<E, kOp, kFinish>(a[i], b[i], after);
}
template <typename E, int kOp, Finish kFinish>
void reduce_into_second(const typename E::Storage* __restrict a, typename E::Storage* __restrict b,
                        size_t count, Scale after) {
  for (size_t i = 0; i < count; ++i) b[i] = combine_two<E, kOp, kFinish>(a[i], b[i], after);
}
template <typename E, int kOp, Finish kFinish>
void reduce_two(void* result, const void* const* inputs, size_t count, const Scale& after) {
  using Storage = typename E::Storage;
  auto* out = static_cast<Storage*>(result);
  const auto* a = static_cast<const Storage*>(inputs[0]);
  const auto* b = static_cast<const Storage*>(inputs[1]);
  if (result == a) return reduce_into_first<E, kOp, kFinish>(out, b, count, after);
  if (result == b) return reduce_into_second<E, kOp, kFinish>(a, out, count, after);
  reduce_apart<E, kOp, kFinish>(out, a, b, count, after);
}

// Compilers do not use the processor's float16 conversions for loops over bits. Without these conversions, a sum of two
// inputs in the caches takes more than twice the time (docs/design/performance-log.md). store_quotients() converts by
// bits.
template <typename E>
inline void load_block(typename E::Value* __restrict block,
                       const typename E::Storage* __restrict in, size_t count) {
  size_t i = 0;
  if constexpr (E::kConvertsBlocks) i = floats_of_halves(block, in, count);
  for (; i < count; ++i) block[i] = E::load(in[i]);
}
template <typename E>
inline void store_block(typename E::Output* __restrict out,
                        const typename E::Value* __restrict block, size_t count) {
  size_t i = 0;
  if constexpr (E::kConvertsBlocks && sizeof(typename E::Output) == sizeof(Half)) {
    i = halves_of_floats(out, block, count);
  }
  for (; i < count; ++i) out[i] = E::store(block[i]);
}

// The number of elements of a block: few enough for the L1 cache, and enough to hide the cost of the outer loop.
constexpr size_t kBlock = 1024;

// Reduces without a block if possible: two inputs without a prescale, or one input that is already the result. Returns
// false for any other call.
template <typename E, int kOp>
inline bool reduce_directly(void* result, const void* const* inputs, size_t input_count,
                            size_t count, const Scale& before, const Scale& after) {
  if constexpr (E::kDirect) {
    if (before.active) return false;
    if (input_count == 1) return result == inputs[0] && !after.active;
    if (input_count != 2) return false;
    const bool divides = E::kIsFloat && after.is_inexact;
    if (!after.active) {
      reduce_two<E, kOp, Finish::kNothing>(result, inputs, count, after);
      return true;
    }
    if constexpr (E::kScalesInPassing) {
      if (!divides) {
        reduce_two<E, kOp, Finish::kScale>(result, inputs, count, after);
        return true;
      }
    }
    if constexpr (E::kDividesInPassing && kOp == HVD_SUM) {
      if (divides) {
        reduce_two<E, kOp, Finish::kDivide>(result, inputs, count, after);
        return true;
      }
    }
  }
  return false;
}

// Reduces elements `first` to `first + n` of all inputs into the block.
template <typename E, int kOp>
inline void reduce_block(typename E::Value* __restrict block, const void* const* inputs,
                         size_t input_count, size_t first, size_t n, const Scale& before) {
  using Storage = typename E::Storage;
  using Value = typename E::Value;
  Value converted[E::kConvertsBlocks ? kBlock : 1];
  const auto input = [&](size_t k) { return static_cast<const Storage*>(inputs[k]) + first; };
  const auto values = [&](size_t k) {
    if constexpr (!E::kConvertsBlocks) return input(k);
    if constexpr (E::kConvertsBlocks) {
      load_block<E>(converted, input(k), n);
      return static_cast<const Value*>(converted);
    }
  };
  const auto load = [](auto value) {
    if constexpr (!E::kConvertsBlocks) return E::load(value);
    if constexpr (E::kConvertsBlocks) return value;
  };
  // With two inputs at a time, the block is read and written half as often.
  constexpr bool kByTwo = !E::kConvertsBlocks;
  size_t k = 1;
  if (kByTwo && input_count > 1 && !before.active) {
    const auto *const in = values(0), *const next = values(1);
    for (size_t i = 0; i < n; ++i) block[i] = combine<E, kOp>(load(in[i]), load(next[i]));
    k = 2;
  } else {
    load_block<E>(block, input(0), n);
  }
  if (before.active) {
    for (size_t i = 0; i < n; ++i) block[i] = E::scale(block[i], before);
    for (; k < input_count; ++k) {
      const auto* const in = values(k);
      for (size_t i = 0; i < n; ++i) {
        block[i] = combine<E, kOp>(block[i], E::scale(load(in[i]), before));
      }
    }
  }
  for (; kByTwo && k + 1 < input_count; k += 2) {
    const auto *const in = values(k), *const next = values(k + 1);
    for (size_t i = 0; i < n; ++i) {
      const Value both = combine<E, kOp>(block[i], load(in[i]));
      block[i] = E::with_one_nan(combine<E, kOp>(both, load(next[i])));
    }
  }
  for (; k < input_count; ++k) {
    const auto* const in = values(k);
    for (size_t i = 0; i < n; ++i) {
      block[i] = E::with_one_nan(combine<E, kOp>(block[i], load(in[i])));
    }
  }
  if (before.active || input_count <= 2) {
    for (size_t i = 0; i < n; ++i) block[i] = E::with_one_nan(block[i]);
  }
}

template <typename E, int kOp>
void reduce(void* result, const void* const* inputs, size_t input_count, size_t count,
            const Scale& before, const Scale& after) {
  if (reduce_directly<E, kOp>(result, inputs, input_count, count, before, after)) return;
  auto* out = static_cast<typename E::Output*>(result);
  typename E::Value block[kBlock];
  for (size_t first = 0; first < count; first += kBlock) {
    const size_t n = count - first < kBlock ? count - first : kBlock;
    reduce_block<E, kOp>(block, inputs, input_count, first, n, before);
    if constexpr (E::kIsFloat) {
      if (after.is_inexact) {
        store_quotients<E>(out + first, block, n, after);
        continue;
      }
    }
    if (after.active) {
      for (size_t i = 0; i < n; ++i) block[i] = E::with_one_nan(E::scale(block[i], after));
    }
    // Without a conversion, this is memcpy, which does not read the result's cache lines first.
    store_block<E>(out + first, block, n);
  }
}

template <typename E>
ReduceFunction find_operation(int op) {
  switch (op) {
    case HVD_SUM:
      return reduce<E, HVD_SUM>;
    case HVD_MIN:
      return reduce<E, HVD_MIN>;
    case HVD_MAX:
      return reduce<E, HVD_MAX>;
    case HVD_PRODUCT:
      return reduce<E, HVD_PRODUCT>;
    default:
      return nullptr;
  }
}

ReduceFunction find_part_kernel(int dtype, int op) {
  if (dtype == HVD_FLOAT16) return find_operation<PartOf<HalfElement>>(op);
  if (dtype == HVD_BFLOAT16) return find_operation<PartOf<BFloat16Element>>(op);
  return nullptr;
}

ReduceFunction find_kernel(int dtype, int op) {
  switch (dtype) {
    case HVD_UINT8:
      return find_operation<IntegerElement<uint8_t, uint32_t, false>>(op);
    case HVD_INT8:
      return find_operation<IntegerElement<int8_t, uint32_t, true>>(op);
    case HVD_UINT16:
      return find_operation<IntegerElement<uint16_t, uint32_t, false>>(op);
    case HVD_INT16:
      return find_operation<IntegerElement<int16_t, uint32_t, true>>(op);
    case HVD_INT32:
      return find_operation<IntegerElement<int32_t, uint32_t, true>>(op);
    case HVD_INT64:
      return find_operation<IntegerElement<int64_t, uint64_t, true>>(op);
    case HVD_FLOAT16:
      return find_operation<HalfElement>(op);
    case HVD_FLOAT32:
      return find_operation<FloatElement<float>>(op);
    case HVD_FLOAT64:
      return find_operation<FloatElement<double>>(op);
    case HVD_BOOL:
      return find_operation<TruthElement>(op);
    case HVD_BFLOAT16:
      return find_operation<BFloat16Element>(op);
    case HVD_UINT32:
      return find_operation<IntegerElement<uint32_t, uint32_t, false>>(op);
    case HVD_UINT64:
      return find_operation<IntegerElement<uint64_t, uint64_t, false>>(op);
    default:
      return nullptr;
  }
}
