#include "launcher/protocol/chunk_stream.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/secrets/chacha20.h"
#include "base/secrets/secret.h"
#include "launcher/protocol/chunk_table.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

constexpr Digest kChunkKey{std::byte{1}};
constexpr ChunkNonces kChunkNonces{{std::byte{2}}, {std::byte{3}}};

}  // namespace

// RFC 8439, section 2.4.2.
TEST_CASE("ChaCha20 gives the bytes of its specification, for messages of any length") {
  Digest key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  ChaCha20Nonce nonce{};
  nonce[7] = std::byte{0x4a};
  const std::string text =
      "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
      "sunscreen would be it.";
  Bytes bytes = to_bytes(text);
  chacha20(key, nonce, 1, bytes);
  CHECK(to_hex(bytes) ==
        "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0b"
        "f91b65c5524733ab8f593dabcd62b3571639d624e65152ab8f530c359f0861d8"
        "07ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab7793736"
        "5af90bbf74a35be6b40b8eedf2785e42874d");
  chacha20(key, nonce, 1, bytes);
  CHECK(as_text(bytes) == text);
  // In pieces of whole blocks.
  Bytes one(1000), other(1000);
  chacha20(key, nonce, 0, one);
  chacha20(key, nonce, 0, std::span(other).first(320));
  chacha20(key, nonce, 5, std::span(other).subspan(320));
  CHECK(one == other);
}

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

TEST_CASE("chunks arrive in any pieces, encrypted, and in the order in which they were sent") {
  ChunkSealer sealer(kChunkKey, kChunkNonces);
  const std::string text(kChunkSize, 'x');
  Bytes sent = sealer.seal(3, text);
  CHECK(as_text(sent).find("xxxxxxxx") == std::string_view::npos);
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
