#include "base/platform_memory.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hvd {

#if defined(__x86_64__)
namespace {

constexpr size_t kLine = 64;

// Whole lines, so that each leaves the write-combining buffers at once.
void stream_lines(std::byte* to, const std::byte* from, size_t lines) {
  for (; lines > 0; --lines, to += kLine, from += kLine) {
    const auto* in = reinterpret_cast<const __m128i*>(from);
    auto* out = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
}

}  // namespace

void copy_past_caches(void* to, const void* from, size_t size) {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(out) % kLine) % kLine;
  if (size < head + kLine) {
    if (size > 0) std::memcpy(out, in, size);
    return;
  }
  if (head > 0) std::memcpy(out, in, head);
  const size_t lines = (size - head) / kLine;
  stream_lines(out + head, in + head, lines);
  const size_t done = head + lines * kLine;
  if (done < size) std::memcpy(out + done, in + done, size - done);
}

// Streaming stores are not ordered with the flag that is stored next.
void settle_past_caches() { _mm_sfence(); }
#else
void copy_past_caches(void* to, const void* from, size_t size) {
  if (size > 0) std::memcpy(to, from, size);
}
void settle_past_caches() {}
#endif

}  // namespace hvd
