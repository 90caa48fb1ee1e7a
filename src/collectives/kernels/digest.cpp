#include "collectives/kernels/digest.h"

#include <array>
#include <bit>
#include <cstring>

namespace hvd::collectives {

namespace {

// Odd, so that the multiplication is invertible.
constexpr uint64_t kDigestFactor = 0x9e3779b97f4a7c15U;
constexpr size_t kDigestWord = sizeof(uint64_t);
// Number of independent chains: a multiplication waits only for the previous multiplication of its chain.
constexpr size_t kDigestLanes = 4;

uint64_t mixed(uint64_t state, uint64_t word) {
  return std::rotl((state ^ word) * kDigestFactor, 29);
}

uint64_t word_at(const unsigned char* at, size_t size) {
  uint64_t word = 0;
  std::memcpy(&word, at, size);
  return word;
}

}  // namespace

uint64_t digest_of(const void* data, size_t size, uint64_t seed) {
  const auto* at = static_cast<const unsigned char*>(data);
  const unsigned char* const end = at + size;
  std::array<uint64_t, kDigestLanes> lanes = {};
  for (size_t i = 0; i < kDigestLanes; ++i) lanes[i] = mixed(seed, i);
  while (static_cast<size_t>(end - at) >= kDigestLanes * kDigestWord) {
    for (size_t i = 0; i < kDigestLanes; ++i)
      lanes[i] = mixed(lanes[i], word_at(at + i * kDigestWord, kDigestWord));
    at += kDigestLanes * kDigestWord;
  }
  uint64_t digest = mixed(seed, size);
  while (at != end) {
    const size_t part =
        static_cast<size_t>(end - at) < kDigestWord ? static_cast<size_t>(end - at) : kDigestWord;
    digest = mixed(digest, word_at(at, part));
    at += part;
  }
  for (const uint64_t lane : lanes) digest = mixed(digest, lane);
  return digest ^ (digest >> 31);
}

}  // namespace hvd::collectives
