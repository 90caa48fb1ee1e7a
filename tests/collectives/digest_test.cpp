#include "collectives/kernels/digest.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

using hvd::collectives::digest_of;

namespace {

uint64_t digest_of_all(const std::vector<float>& values, uint64_t seed = 0) {
  return digest_of(values.data(), values.size() * sizeof(float), seed);
}

}  // namespace

TEST_CASE("equal bytes have equal digests") {
  CHECK(digest_of_all({1, 2, 3}) == digest_of_all({1, 2, 3}));
  CHECK(digest_of(nullptr, 0, 7) == digest_of(nullptr, 0, 7));
}

TEST_CASE("each byte and each count of bytes changes the digest") {
  std::set<uint64_t> seen;
  std::vector<unsigned char> bytes(67);
  for (size_t size = 0; size <= bytes.size(); ++size) seen.insert(digest_of(bytes.data(), size, 0));
  CHECK(seen.size() == bytes.size() + 1);
  for (unsigned char& byte : bytes) {
    byte = 1;
    seen.insert(digest_of(bytes.data(), bytes.size(), 0));
    byte = 0;
  }
  CHECK(seen.size() == 2 * bytes.size() + 1);
}

TEST_CASE("permuted rows, a transpose and other boundaries of tensors change the digest") {
  constexpr size_t kSide = 512;
  std::vector<float> values(kSide * kSide);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((i / kSide + i % kSide / 3) % 2);
  const uint64_t digest = digest_of_all(values);
  std::vector<float> permuted = values;
  std::swap_ranges(permuted.begin(), permuted.begin() + kSide, permuted.begin() + kSide);
  CHECK(digest_of_all(permuted) != digest);
  std::vector<float> transposed(values.size());
  for (size_t i = 0; i < values.size(); ++i) transposed[i % kSide * kSide + i / kSide] = values[i];
  CHECK(digest_of_all(transposed) != digest);
  CHECK(digest_of_all({3}, digest_of_all({1, 2})) != digest_of_all({2, 3}, digest_of_all({1})));
}
