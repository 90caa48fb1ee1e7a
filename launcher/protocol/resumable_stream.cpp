#include "launcher/protocol/resumable_stream.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/secrets/hmac.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

constexpr uint32_t kEndOfStream = 1u << 31;
// The peer stops sending at kMostKept unacknowledged bytes, so acknowledgements must reach it long before.
constexpr uint64_t kAcknowledgeEvery = ResumableStream::kMostKept / 4;

}  // namespace

ResumableStream::ResumableStream(const SessionKey& key)
    : key_(key), id_(HmacKey(key).sign(as_bytes("horovod link session"))) {}

void ResumableStream::put(ByteView bytes) {
  HVD_CHECK(bytes.size() <= room() && !is_ending_);
  kept_.insert(kept_.end(), bytes.begin(), bytes.end());
}

bool ResumableStream::has_unsent() const {
  return sent_ < acknowledged_ + kept().size() || (is_ending_ && !is_end_sent_);
}

Bytes ResumableStream::take() {
  const ByteView unsent = kept().subspan(sent_ - acknowledged_);
  const size_t size = std::min(unsent.size(), kMostInRecord);
  const bool is_end = is_ending_ && !is_end_sent_ && size == unsent.size();
  if (size == 0 && !is_end && received_ - announced_ < kAcknowledgeEvery) return {};
  ByteWriter record;
  record.put(static_cast<uint32_t>(size) | (is_end ? kEndOfStream : 0)).put(received_);
  record.put_raw(unsent.first(size));
  sent_ += size;
  sent_at_most_ = std::max(sent_at_most_, sent_);
  announced_ = received_;
  is_end_sent_ = is_end_sent_ || is_end;
  return record.take();
}

Status ResumableStream::acknowledge(uint64_t received) {
  if (received < acknowledged_ || received > sent_) {
    return internal_error("the far side acknowledges bytes of the link that it was not sent");
  }
  begin_ += received - acknowledged_;
  acknowledged_ = received;
  // Removes acknowledged bytes, but rarely, since each removal moves all other bytes.
  if (begin_ > kept_.size() / 2) {
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<ptrdiff_t>(begin_));
    begin_ = 0;
  }
  return {};
}

Status ResumableStream::take_header() {
  ByteReader reader(header_);
  const auto length = reader.get<uint32_t>();
  header_size_ = 0;
  left_ = length & ~kEndOfStream;
  is_end_announced_ = (length & kEndOfStream) != 0;
  return acknowledge(reader.get<uint64_t>());
}

Result<size_t> ResumableStream::receive(std::span<std::byte> bytes) {
  size_t out = 0;
  for (size_t at = 0; at < bytes.size();) {
    if (left_ > 0) {
      const size_t size = std::min(left_, bytes.size() - at);
      std::memmove(bytes.data() + out, bytes.data() + at, size);
      at += size;
      out += size;
      left_ -= size;
      received_ += size;
      continue;
    }
    if (is_end_announced_)
      return internal_error("the far side sent bytes after the end of the link");
    header_[header_size_++] = bytes[at++];
    if (header_size_ == sizeof(uint32_t)) {
      const auto length = ByteReader(header_).get<uint32_t>() & ~kEndOfStream;
      if (length <= kMostInRecord) continue;
      if (received_ > 0) return internal_error("unexpected bytes between two records on the link");
      const std::string text =
          cat(as_text(ByteView(header_).first(header_size_)), as_text(ByteView(bytes).subspan(at)));
      return unavailable(
          cat("the far side is not a horovod agent: it began with '", printable(trim(text)), "'"));
    }
    if (header_size_ == kRecordHeader) HVD_RETURN_IF_ERROR(take_header());
  }
  return out;
}

Proof ResumableStream::prove(std::string_view who, const Nonce& of_launcher, const Nonce& of_agent,
                             uint64_t received) const {
  ByteWriter message;
  message.put_text(who).put_blob(of_launcher).put_blob(of_agent).put(received);
  return HmacKey(key_).sign(message.view());
}

// Prepares for another connection, on which the peer expects the bytes from position `received` on.
Status ResumableStream::continue_at(uint64_t received) {
  if (received < acknowledged_ || received > sent_at_most_) {
    return internal_error("the far side counts other bytes of the link than this side");
  }
  sent_ = received;
  is_end_sent_ = false;
  header_size_ = 0;
  left_ = 0;
  is_end_announced_ = false;
  announced_ = received_;
  return acknowledge(received);
}

Resume ResumableStream::offer(const Nonce& of_launcher, const Nonce& of_agent) const {
  return {.session = id_,
          .nonce = of_agent,
          .received = received_,
          .proof = prove("horovod link agent", of_launcher, of_agent, received_)};
}

Result<Resumed> ResumableStream::answer(const Resume& offer, const Nonce& of_launcher) {
  const Proof expected = prove("horovod link agent", of_launcher, offer.nonce, offer.received);
  if (offer.session != id_ || !is_same(offer.proof, expected)) {
    return permission_denied("the agent does not prove that it has the key of this link");
  }
  HVD_RETURN_IF_ERROR(continue_at(offer.received));
  return Resumed{.received = received_,
                 .proof = prove("horovod link launcher", of_launcher, offer.nonce, received_)};
}

Status ResumableStream::confirm(const Resume& offer, const Nonce& of_launcher,
                                const Resumed& answer) {
  if (!is_same(answer.proof,
               prove("horovod link launcher", of_launcher, offer.nonce, answer.received))) {
    return permission_denied("the launcher does not prove that it has the key of this link");
  }
  return continue_at(answer.received);
}

}  // namespace hvd::launcher
