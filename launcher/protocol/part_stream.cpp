#include "launcher/protocol/part_stream.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "launcher/protocol/staged_parts.h"

namespace hvd::launcher {
namespace {

constexpr size_t kSizeBytes = sizeof(uint32_t);
// Space for the bytes of a part, and for its path.
constexpr size_t kMostRecord = kMostStaged + (8 << 10);

std::string_view raw(const uint64_t& number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

Proof prove(const Digest& key, const PartNonces& nonces) {
  return HmacKey(key).sign(
      {"horovod part request 1", as_text(nonces.of_server), as_text(nonces.of_client)});
}

}  // namespace

Bytes make_part_request(const Digest& key, const PartNonces& nonces) {
  ByteWriter request;
  request.put_raw(nonces.of_client).put_raw(prove(key, nonces));
  return request.take();
}

std::optional<Nonce> check_part_request(const Digest& key, const Nonce& of_server,
                                        ByteView request) {
  if (request.size() != kRequestSize) return {};
  Nonce of_client;
  Proof proof;
  std::ranges::copy(request.first(sizeof of_client), of_client.begin());
  std::ranges::copy(request.last(sizeof proof), proof.begin());
  if (!is_same(proof, prove(key, {of_server, of_client}))) return {};
  return of_client;
}

HmacKey part_key(const Digest& key, const PartNonces& nonces) {
  return HmacKey(HmacKey(key).sign(
      {"horovod part tag 1", as_text(nonces.of_server), as_text(nonces.of_client)}));
}

Bytes PartSealer::seal(const StagePart& part) {
  const Bytes content = encode(part);
  const size_t size = content.size() + sizeof(Digest);
  HVD_CHECK(size <= kMostRecord);
  const Digest tag = key_.sign({raw(records_++), as_text(content)});
  ByteWriter record;
  record.put(static_cast<uint32_t>(size)).put_raw(content).put_raw(tag);
  return record.take();
}

void PartOpener::feed(ByteView bytes) { buffer_.insert(buffer_.end(), bytes.begin(), bytes.end()); }

Result<std::optional<StagePart>> PartOpener::next() {
  if (buffer_.size() < kSizeBytes) return std::optional<StagePart>();
  const size_t size = ByteReader(buffer_).get<uint32_t>();
  if (size < sizeof(Digest) || size > kMostRecord) {
    return invalid_argument(cat("a record of parts has ", size, " bytes"));
  }
  if (buffer_.size() < kSizeBytes + size) return std::optional<StagePart>();
  const ByteView record = ByteView(buffer_).subspan(kSizeBytes, size);
  const ByteView content = record.first(size - sizeof(Digest));
  Digest tag;
  std::ranges::copy(record.last(sizeof tag), tag.begin());
  if (!is_same(tag, key_.sign({raw(records_), as_text(content)}))) {
    return invalid_argument("a record of parts has a wrong tag");
  }
  ++records_;
  HVD_ASSIGN_OR_RETURN(Message message, decode(content));
  auto* const part = std::get_if<StagePart>(&message);
  if (part == nullptr) return invalid_argument("a record of parts holds another message");
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(kSizeBytes + size));
  return std::optional(std::move(*part));
}

}  // namespace hvd::launcher
