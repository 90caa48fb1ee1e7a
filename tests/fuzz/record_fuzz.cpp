// Records of an encrypted link: bytes of an attacker, and the peer's records with changes in
// transit. The opener returns only sealed content, in its order, for any pieces.
//
// The input: two bytes for the place of a change, one for its bits (0: none), one for the number of
// records; then their contents, of equal sizes. With number 0, the opener gets the rest unchanged.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "collectives/mesh/peer_stream.h"
#include "fuzz/target.h"

namespace {

using hvd::Bytes;
using hvd::ByteView;
using hvd::collectives::RecordOpener;
using hvd::collectives::RecordSealer;

struct Outcome {
  Bytes content;
  bool is_broken = false;
  bool operator==(const Outcome&) const = default;
};

const hvd::Digest kKey = hvd::sha256(hvd::as_bytes("a key"));

Outcome open_all(ByteView sealed, size_t arriving, size_t wanted) {
  RecordOpener opener(kKey);
  Outcome outcome;
  Bytes buffer(wanted);
  for (;;) {
    const bool has_content = opener.has_content();
    const auto got = opener.take(buffer);
    if (has_content != (!got.ok() || *got > 0)) std::abort();
    outcome.is_broken = !got.ok();
    if (!got.ok()) return outcome;
    outcome.content.insert(outcome.content.end(), buffer.begin(),
                           buffer.begin() + static_cast<ptrdiff_t>(*got));
    if (*got > 0) continue;
    if (sealed.empty()) return outcome;
    const auto space = opener.space();
    if (space.empty()) std::abort();
    const size_t part = std::min({space.size(), arriving, sealed.size()});
    std::memcpy(space.data(), sealed.data(), part);
    opener.advance(part);
    sealed = sealed.subspan(part);
  }
}

}  // namespace

HVD_FUZZ_TARGET(record) {
  if (size < 4) return;
  const size_t place = data[0] + 256u * data[1], records = data[3];
  const ByteView content = bytes.subspan(4);
  Bytes sealed(content.begin(), content.end());
  if (records > 0 && !content.empty()) {
    sealed.clear();
    RecordSealer sealer(kKey);
    const size_t each = std::min(content.size() / records + 1, RecordSealer::kMostContent);
    for (size_t begin = 0; begin < content.size(); begin += each) {
      const ByteView part = content.subspan(begin, std::min(each, content.size() - begin));
      if (sealer.seal({&part, 1}).value_or(0) != part.size()) std::abort();
      sealed.insert(sealed.end(), sealer.output().begin(), sealer.output().end());
      sealer.sent(sealer.output().size());
    }
  }
  const bool is_changed = data[2] != 0 && !sealed.empty();
  if (is_changed) sealed[place % sealed.size()] ^= static_cast<std::byte>(data[2]);
  const Outcome whole = open_all(sealed, SIZE_MAX, 1 << 17);
  if (whole != open_all(sealed, 1, 1 << 17) || whole != open_all(sealed, 1000, 3)) std::abort();
  if (records == 0 || content.empty()) {
    if (!whole.content.empty()) std::abort();
    return;
  }
  if (whole.is_broken != is_changed || whole.content.size() > content.size()) std::abort();
  if (!is_changed && whole.content.size() != content.size()) std::abort();
  if (!std::equal(whole.content.begin(), whole.content.end(), content.begin())) std::abort();
}
