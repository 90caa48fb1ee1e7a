// The first byte chooses: the rest is a request, the bytes of a server, or the content of parts
// that this program seals with the key. A request needs its proof, a server's bytes mean the same
// in any pieces, and sealed content arrives.
#include <algorithm>
#include <string>

#include "base/text.h"
#include "fuzz/target.h"
#include "launcher/protocol/staged_parts.h"

namespace {

using namespace hvd;
using namespace hvd::launcher;

constexpr Digest kKey{std::byte{1}};
constexpr PartNonces kNonces{{std::byte{2}}, {std::byte{3}}};

std::string received(ByteView bytes, size_t piece) {
  PartOpener opener(kKey, kNonces);
  std::string text;
  while (!bytes.empty()) {
    const ByteView part = bytes.first(std::min(std::max<size_t>(piece, 1), bytes.size()));
    bytes = bytes.subspan(part.size());
    opener.feed(part);
    for (;;) {
      const auto found = opener.next();
      if (!found.ok()) return "failed";
      if (!*found) break;
      text += cat((*found)->path, ":", (*found)->bytes, ";");
    }
  }
  return text;
}

}  // namespace

HVD_FUZZ_TARGET(part_stream) {
  if (size == 0) return;
  bytes = bytes.subspan(1);
  if (data[0] % 3 == 0) {
    const auto of_client = check_part_request(kKey, kNonces.of_server, bytes);
    if (!of_client) return;
    HVD_CHECK(std::ranges::equal(make_part_request(kKey, {kNonces.of_server, *of_client}), bytes));
  } else if (data[0] % 3 == 1) {
    HVD_CHECK(received(bytes, bytes.size()) == received(bytes, 1));
  } else if (size <= kMostStaged) {
    const std::string first(as_text(bytes.first(bytes.size() / 2)));
    const std::string second(as_text(bytes.subspan(bytes.size() / 2)));
    PartSealer sealer(kKey, kNonces);
    Bytes sealed = sealer.seal({StageKind::kFile, 0600, "a", first});
    const Bytes more = sealer.seal({StageKind::kMore, 0600, "b", second});
    sealed.insert(sealed.end(), more.begin(), more.end());
    HVD_CHECK(received(sealed, 7) == cat("a:", first, ";b:", second, ";"));
  }
}
