#include "launcher/protocol/chunk_stream.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "launcher/protocol/chunk_table.h"

namespace hvd::launcher {
namespace {

constexpr size_t kSizeBytes = sizeof(uint32_t);
constexpr size_t kNumberBytes = sizeof(uint64_t);
constexpr size_t kLeastRecord = kNumberBytes + sizeof(Digest);
constexpr size_t kMostRecord = kLeastRecord + kChunkSize;

std::string_view raw(const uint64_t& number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

Proof prove(const Digest& key, const ChunkNonces& nonces, const uint64_t& first) {
  return HmacKey(key).sign({"horovod chunk request 1", as_text(nonces.of_server),
                            as_text(nonces.of_client), raw(first)});
}

}  // namespace

Bytes make_chunk_request(const Digest& key, const ChunkNonces& nonces, uint64_t first) {
  ByteWriter request;
  request.put_raw(nonces.of_client).put(first).put_raw(prove(key, nonces, first));
  return request.take();
}

std::optional<ChunkRequest> check_chunk_request(const Digest& key, const Nonce& of_server,
                                                ByteView request) {
  if (request.size() != kRequestSize) return {};
  ByteReader from(request);
  ChunkRequest found;
  std::ranges::copy(from.get_raw(sizeof(Nonce)), found.of_client.begin());
  found.first = from.get<uint64_t>();
  Proof proof{};
  std::ranges::copy(from.get_raw(sizeof(Proof)), proof.begin());
  if (!is_same(proof, prove(key, {of_server, found.of_client}, found.first))) return {};
  return found;
}

HmacKey chunk_key(const Digest& key, const ChunkNonces& nonces) {
  return HmacKey(HmacKey(key).sign(
      {"horovod chunk tag 2", as_text(nonces.of_server), as_text(nonces.of_client)}));
}

Bytes ChunkSealer::seal(uint64_t number, std::string_view bytes) {
  HVD_CHECK(bytes.size() <= kChunkSize);
  ByteWriter record;
  record.put(static_cast<uint32_t>(kLeastRecord + bytes.size()));
  record.put(number).put_raw(as_bytes(bytes));
  Bytes sealed = record.take();
  const Digest tag = key_.sign({raw(records_), as_text(ByteView(sealed).subspan(kSizeBytes))});
  sealed.insert(sealed.end(), tag.begin(), tag.end());
  ++records_;
  return sealed;
}

void ChunkOpener::feed(ByteView bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<Chunk>> ChunkOpener::next() {
  if (buffer_.size() < kSizeBytes) return std::optional<Chunk>();
  const size_t size = ByteReader(buffer_).get<uint32_t>();
  if (size < kLeastRecord || size > kMostRecord) {
    return invalid_argument(cat("a record of chunks has ", size, " bytes"));
  }
  if (buffer_.size() < kSizeBytes + size) return std::optional<Chunk>();
  const ByteView record = ByteView(buffer_).subspan(kSizeBytes, size);
  const ByteView content = record.first(size - sizeof(Digest));
  Digest tag;
  std::ranges::copy(record.last(sizeof tag), tag.begin());
  if (!is_same(tag, key_.sign({raw(records_), as_text(content)}))) {
    return invalid_argument("a record of chunks has a wrong tag");
  }
  ++records_;
  ByteReader from(content);
  Chunk chunk{.number = from.get<uint64_t>(), .bytes = {}};
  chunk.bytes = as_text(from.get_raw(from.left()));
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(kSizeBytes + size));
  return std::optional(std::move(chunk));
}

}  // namespace hvd::launcher
