#include "base/secrets/chacha20.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace hvd {
namespace {

// The same word of four consecutive blocks.
using Words __attribute__((vector_size(16))) = uint32_t;
constexpr size_t kLanes = 4;
constexpr size_t kChaChaBlock = 64;
constexpr size_t kStateWords = 16;

Words rotated(Words words, int bits) { return (words << bits) | (words >> (32 - bits)); }

void quarter_round(Words& a, Words& b, Words& c, Words& d) {
  a += b;
  d = rotated(d ^ a, 16);
  c += d;
  b = rotated(b ^ c, 12);
  a += b;
  d = rotated(d ^ a, 8);
  c += d;
  b = rotated(b ^ c, 7);
}

}  // namespace

void chacha20(const Digest& key, const ChaCha20Nonce& nonce, uint32_t counter,
              std::span<std::byte> bytes) {
  std::array<uint32_t, kStateWords> start{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
  std::memcpy(&start[4], key.data(), key.size());
  start[12] = counter;
  std::memcpy(&start[13], nonce.data(), nonce.size());
  std::array<uint32_t, kStateWords * kLanes> stream;
  while (!bytes.empty()) {
    std::array<Words, kStateWords> first, x;
    for (size_t i = 0; i < kStateWords; ++i) first[i] = Words{} + start[i];
    first[12] += Words{0, 1, 2, 3};
    x = first;
    for (int round = 0; round < 20; round += 2) {
      quarter_round(x[0], x[4], x[8], x[12]);
      quarter_round(x[1], x[5], x[9], x[13]);
      quarter_round(x[2], x[6], x[10], x[14]);
      quarter_round(x[3], x[7], x[11], x[15]);
      quarter_round(x[0], x[5], x[10], x[15]);
      quarter_round(x[1], x[6], x[11], x[12]);
      quarter_round(x[2], x[7], x[8], x[13]);
      quarter_round(x[3], x[4], x[9], x[14]);
    }
    for (size_t i = 0; i < kStateWords; ++i) {
      const Words sum = x[i] + first[i];
      for (size_t lane = 0; lane < kLanes; ++lane) stream[lane * kStateWords + i] = sum[lane];
    }
    const size_t size = std::min(bytes.size(), kLanes * kChaChaBlock);
    const std::span<const std::byte> mask = std::as_bytes(std::span(stream));
    for (size_t i = 0; i < size; ++i) bytes[i] ^= mask[i];
    bytes = bytes.subspan(size);
    start[12] += kLanes;
  }
}

}  // namespace hvd
