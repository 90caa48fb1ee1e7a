// The records of an encrypted link between two ranks: AES-256-GCM, with a key for each link and
// direction. Moves no bytes itself. One caller at a time.
//
// A record: the length of its content (uint32), the complement of this length, the encrypted
// content, a tag of 16 bytes. The nonce is the record's number in its direction, which is not sent: the
// tag of a repeated, reordered or omitted record does not match. The tag also covers the length. The
// complement detects most changed lengths at once; otherwise the receiver would wait for bytes that
// never come.
#pragma once

#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "base/secrets/aes_gcm.h"
#include "base/secrets/hmac.h"

namespace hvd::collectives {

// The keys of one link, from both ranks' proofs (Handshake).
struct LinkKeys {
  Digest sending, receiving;
};

// The cipher of one direction and the number of the next record. After each 2^20 records, derives a new
// key from the link's key, so that the amount of data under one key stays within the limits of AES-GCM.
class RecordCipher {
 public:
  static constexpr uint64_t kRecordsPerKey = uint64_t{1} << 20;

  RecordCipher(const Digest& key, AesGcm::Direction direction, uint64_t first)
      : link_key_(key), direction_(direction), next_(first) {}
  bool is_used_up() const { return next_ == UINT64_MAX; }
  // Returns the cipher for the next record and sets the record's number. Must not be called after the last number.
  AesGcm& advance(uint64_t& number);

 private:
  HmacKey link_key_;
  AesGcm::Direction direction_;
  uint64_t next_;
  std::optional<AesGcm> cipher_;
};

class RecordSealer {
 public:
  static constexpr size_t kHeader = 2 * sizeof(uint32_t);
  static constexpr size_t kMostContent = 64 * 1024;
  static constexpr size_t kMostParts = 4;

  // `first`: number of the first record.
  explicit RecordSealer(const Digest& key, uint64_t first = 0)
      : cipher_(key, AesGcm::Direction::kSeal, first) {}

  // Seals bytes of the parts, without the first `skip` bytes, in one record. Returns the number of sealed
  // bytes. Call it only if output() is empty. An error is final: the record numbers are used up.
  Result<size_t> seal(std::span<const ByteView> parts, size_t skip = 0);
  // Returns the bytes of the record that have not been sent.
  ByteView output() const { return ByteView(record_).subspan(sent_, size_ - sent_); }
  void sent(size_t size) { sent_ += size; }

 private:
  RecordCipher cipher_;
  Bytes record_;
  size_t size_ = 0;
  size_t sent_ = 0;
};

class RecordOpener {
 public:
  explicit RecordOpener(const Digest& key, uint64_t first = 0)
      : cipher_(key, AesGcm::Direction::kOpen, first) {}

  // Returns the buffer for the next bytes from the link; never empty. Call it only after take() returned 0.
  std::span<std::byte> space();
  void advance(size_t size) { end_ += size; }
  // Takes content of the next record, at most bytes.size(), which is not 0. Returns 0 until the
  // complete record has arrived; returns content only after checking its tag. An error is final;
  // `bytes` may then hold bytes that the sender did not send.
  Result<size_t> take(std::span<std::byte> bytes);
  // Returns whether take() would return content or an error.
  bool has_content() const;

 private:
  // The initial buffer size, for links that carry small messages, and the full size.
  static constexpr size_t kSmallRoom = 4096;
  static constexpr size_t kRoom = 256 * 1024;

  // The length of the next record's content; 0 before its header has arrived, kBroken for an invalid header.
  static constexpr size_t kBroken = SIZE_MAX;
  size_t next_length() const;
  Status broken();

  RecordCipher cipher_;
  Bytes bytes_;
  size_t begin_ = 0;  // [begin_, end_): received bytes of unopened records
  size_t end_ = 0;
  ByteView content_;  // content of a record opened in bytes_, not taken yet
  bool is_broken_ = false;
};

}  // namespace hvd::collectives
