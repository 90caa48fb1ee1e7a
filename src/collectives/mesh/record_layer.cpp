#include "collectives/mesh/record_layer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"

namespace hvd::collectives {

AesGcm& RecordCipher::advance(uint64_t& number) {
  number = next_++;
  if (!cipher_ || number % kRecordsPerKey == 0) {
    const uint64_t key = number / kRecordsPerKey;
    cipher_.emplace(link_key_.sign(ByteWriter().put(key).view()), direction_);
  }
  return *cipher_;
}

Result<size_t> RecordSealer::seal(std::span<const ByteView> parts, size_t skip) {
  if (cipher_.is_used_up()) {
    return failed_precondition("a link has no number for another record; start the job again");
  }
  std::array<ByteView, kMostParts> content;
  size_t count = 0, size = 0;
  for (ByteView part : parts) {
    const size_t skipped = std::min(skip, part.size());
    skip -= skipped;
    part = part.subspan(skipped);
    part = part.first(std::min(part.size(), kMostContent - size));
    if (part.empty()) continue;
    HVD_CHECK(count < kMostParts);
    content[count++] = part;
    size += part.size();
  }
  HVD_CHECK(size > 0);
  size_ = kHeader + size + AesGcm::kTagSize;
  sent_ = 0;
  if (record_.size() < size_) record_.resize(size_);
  const std::array<uint32_t, 2> header{static_cast<uint32_t>(size), ~static_cast<uint32_t>(size)};
  std::memcpy(record_.data(), header.data(), kHeader);
  uint64_t number = 0;
  AesGcm& cipher = cipher_.advance(number);
  cipher.seal(number, std::span(content).first(count), record_.data() + kHeader);
  return size;
}

std::span<std::byte> RecordOpener::space() {
  HVD_CHECK(content_.empty());
  constexpr size_t kMostRecord =
      RecordSealer::kHeader + RecordSealer::kMostContent + AesGcm::kTagSize;
  static_assert(kRoom >= 2 * kMostRecord);
  if (bytes_.empty()) bytes_.resize(kSmallRoom);
  const size_t kept = end_ - begin_;
  if (kept == 0 || bytes_.size() - end_ < kMostRecord) {
    if (kept > 0 && begin_ > 0) std::memmove(bytes_.data(), bytes_.data() + begin_, kept);
    begin_ = 0;
    end_ = kept;
  }
  // The initial buffer is too small for this record.
  if (end_ == bytes_.size()) bytes_.resize(kRoom);
  return std::span(bytes_).subspan(end_);
}

size_t RecordOpener::next_length() const {
  if (end_ - begin_ < RecordSealer::kHeader) return 0;
  std::array<uint32_t, 2> header;
  std::memcpy(header.data(), bytes_.data() + begin_, RecordSealer::kHeader);
  const bool is_length = header[0] == ~header[1] && header[0] > 0;
  return is_length && header[0] <= RecordSealer::kMostContent ? header[0] : kBroken;
}

bool RecordOpener::has_content() const {
  if (is_broken_) return false;
  if (!content_.empty()) return true;
  const size_t length = next_length();
  if (length == 0 || length == kBroken) return length == kBroken;
  return end_ - begin_ >= RecordSealer::kHeader + length + AesGcm::kTagSize;
}

Status RecordOpener::broken() {
  is_broken_ = true;
  return invalid_argument(
      "a record is not the next one that was sent: it was changed, repeated, reordered or left "
      "out");
}

Result<size_t> RecordOpener::take(std::span<std::byte> bytes) {
  if (is_broken_) return broken();
  if (content_.empty()) {
    const size_t length = next_length();
    if (length == kBroken) return broken();
    const size_t sealed_size = length + AesGcm::kTagSize;
    if (length == 0 || end_ - begin_ < RecordSealer::kHeader + sealed_size) return size_t{0};
    if (cipher_.is_used_up()) return broken();
    const auto sealed = std::span(bytes_).subspan(begin_ + RecordSealer::kHeader, sealed_size);
    // Avoids a copy if the caller's buffer holds the complete content.
    const bool fits = length <= bytes.size();
    uint64_t number = 0;
    AesGcm& cipher = cipher_.advance(number);
    if (!cipher.open(number, sealed, fits ? bytes.data() : sealed.data())) return broken();
    begin_ += RecordSealer::kHeader + sealed_size;
    if (fits) return length;
    content_ = sealed.first(length);
  }
  const size_t size = std::min(bytes.size(), content_.size());
  std::memcpy(bytes.data(), content_.data(), size);
  content_ = content_.subspan(size);
  return size;
}

}  // namespace hvd::collectives
