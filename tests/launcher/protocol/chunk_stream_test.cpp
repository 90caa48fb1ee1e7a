#include "launcher/protocol/chunk_stream.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/secrets/secret.h"
#include "launcher/protocol/chunk_table.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

constexpr Digest kChunkKey{std::byte{1}};
constexpr ChunkNonces kChunkNonces{{std::byte{2}}, {std::byte{3}}};

}  // namespace

TEST_CASE("files are divided into chunks in the order of the list, and an empty file has one") {
  const ChunkTable chunks({{.path = "a", .size = kChunkSize + 1},
                           {.path = "b", .size = 0},
                           {.path = "c", .size = 2 * kChunkSize}});
  REQUIRE(chunks.size() == 5);
  const auto is_at = [&](uint64_t number, size_t file, uint64_t offset, size_t size) {
    const ChunkTable::Place place = chunks.at(number);
    return place.file == file && place.offset == offset && place.size == size;
  };
  CHECK(is_at(0, 0, 0, kChunkSize));
  CHECK(is_at(1, 0, kChunkSize, 1));
  CHECK(is_at(2, 1, 0, 0));
  CHECK(is_at(3, 2, 0, kChunkSize));
  CHECK(is_at(4, 2, kChunkSize, kChunkSize));
  CHECK(ChunkTable({}).size() == 0);
}

TEST_CASE("a request without the key is refused, and one of another connection") {
  const Bytes request = make_chunk_request(kChunkKey, kChunkNonces, 7);
  REQUIRE(request.size() == kRequestSize);
  const auto found = check_chunk_request(kChunkKey, kChunkNonces.of_server, request);
  REQUIRE(found);
  CHECK(found->first == 7);
  CHECK(found->of_client == kChunkNonces.of_client);
  CHECK(!check_chunk_request({}, kChunkNonces.of_server, request));
  CHECK(!check_chunk_request(kChunkKey, {}, request));
  CHECK(!check_chunk_request(kChunkKey, kChunkNonces.of_server, ByteView(request).first(8)));
  for (size_t i = 0; i < request.size(); ++i) {
    Bytes changed = request;
    changed[i] ^= std::byte{1};
    CHECK(!check_chunk_request(kChunkKey, kChunkNonces.of_server, changed));
  }
}

TEST_CASE("chunks arrive in any pieces, and in the order in which they were sent") {
  ChunkSealer sealer(kChunkKey, kChunkNonces);
  const std::string text(kChunkSize, 'x');
  Bytes sent = sealer.seal(3, text);
  const Bytes second = sealer.seal(kNoChunk, {});
  sent.insert(sent.end(), second.begin(), second.end());
  ChunkOpener opener(kChunkKey, kChunkNonces);
  std::vector<Chunk> chunks;
  for (size_t at = 0; at < sent.size(); at += 1000) {
    opener.feed(ByteView(sent).subspan(at, std::min<size_t>(1000, sent.size() - at)));
    for (;;) {
      auto chunk = opener.next();
      REQUIRE(chunk.ok());
      if (!*chunk) break;
      chunks.push_back(**chunk);
    }
  }
  REQUIRE(chunks.size() == 2);
  CHECK((chunks[0].number == 3 && chunks[0].bytes == text));
  CHECK((chunks[1].number == kNoChunk && chunks[1].bytes.empty()));
  // Another order, another connection, or a changed byte.
  const auto is_refused = [](const ChunkNonces& nonces, ByteView bytes) {
    ChunkOpener other(kChunkKey, nonces);
    other.feed(bytes);
    return !other.next().ok();
  };
  CHECK(is_refused(kChunkNonces, second));
  const Bytes first = ChunkSealer(kChunkKey, kChunkNonces).seal(3, "text");
  CHECK(!is_refused(kChunkNonces, first));
  CHECK(is_refused({kChunkNonces.of_server, {}}, first));
  for (size_t i = sizeof(uint32_t); i < first.size(); ++i) {
    Bytes changed = first;
    changed[i] ^= std::byte{1};
    CHECK(is_refused(kChunkNonces, changed));
  }
  const Bytes endless(4, std::byte{0xff}), tiny(4, std::byte{0});
  CHECK(is_refused(kChunkNonces, endless));
  CHECK(is_refused(kChunkNonces, tiny));
}
