// The first byte chooses: the rest is a request, the bytes of a server, or the content of records that this program
// seals with the key. A request has its proof, a server's bytes mean the same in whatever pieces they come, and what
// was sealed arrives.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/text.h"
#include "fuzz/target.h"
#include "launcher/protocol/chunk_stream.h"
#include "launcher/protocol/chunk_table.h"

namespace {

using namespace hvd;
using namespace hvd::launcher;

constexpr Digest kKey{std::byte{1}};
constexpr ChunkNonces kNonces{{std::byte{2}}, {std::byte{3}}};

std::string received(ByteView bytes, size_t piece) {
  ChunkOpener opener(kKey, kNonces);
  std::string text;
  while (!bytes.empty()) {
    const ByteView part = bytes.first(std::min(std::max<size_t>(piece, 1), bytes.size()));
    bytes = bytes.subspan(part.size());
    opener.feed(part);
    for (;;) {
      const auto chunk = opener.next();
      if (!chunk.ok()) return "failed";
      if (!*chunk) break;
      HVD_CHECK((*chunk)->bytes.size() <= kChunkSize);
      text += cat((*chunk)->number, ":", (*chunk)->bytes, ";");
    }
  }
  return text;
}

}  // namespace

HVD_FUZZ_TARGET(chunk_stream) {
  if (size == 0) return 0;
  const ByteView bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  if (data[0] % 3 == 0) {
    const auto request = check_chunk_request(kKey, kNonces.of_server, bytes);
    if (!request) return 0;
    const ChunkNonces nonces{kNonces.of_server, request->of_client};
    HVD_CHECK(std::ranges::equal(make_chunk_request(kKey, nonces, request->first), bytes));
  } else if (data[0] % 3 == 1) {
    HVD_CHECK(received(bytes, bytes.size()) == received(bytes, 1));
  } else {
    ChunkSealer sealer(kKey, kNonces);
    Bytes sealed = sealer.seal(bytes.size(), as_text(bytes.first(bytes.size() / 2)));
    const Bytes more = sealer.seal(1, as_text(bytes.subspan(bytes.size() / 2)));
    sealed.insert(sealed.end(), more.begin(), more.end());
    HVD_CHECK(received(sealed, 7) == cat(bytes.size(), ":", as_text(bytes.first(bytes.size() / 2)),
                                         ";1:", as_text(bytes.subspan(bytes.size() / 2)), ";"));
  }
  return 0;
}
