// Records of encrypted links: complete, in pieces, and changed in transit.

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "collectives/mesh/peer_stream.h"

using namespace hvd;
using namespace hvd::collectives;

namespace {

constexpr size_t kMost = RecordSealer::kMostContent;
constexpr size_t kFrame = RecordSealer::kHeader + AesGcm::kTagSize;

Digest key_of(std::string_view name) { return sha256(as_bytes(name)); }

Bytes pattern(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

Bytes seal_one(RecordSealer& sealer, ByteView content) {
  const auto taken = sealer.seal({&content, 1});
  REQUIRE(taken.value_or(0) == std::min(content.size(), kMost));
  const Bytes record(sealer.output().begin(), sealer.output().end());
  sealer.sent(record.size());
  return record;
}

Bytes seal_all(RecordSealer& sealer, ByteView content) {
  Bytes sealed;
  for (size_t begin = 0; begin < content.size(); begin += kMost) {
    const Bytes record = seal_one(sealer, content.subspan(begin));
    sealed.insert(sealed.end(), record.begin(), record.end());
  }
  return sealed;
}

struct Outcome {
  Bytes content;
  bool is_broken = false;
};

// Feeds at most `arriving` bytes at a time, and reads at most `wanted`.
Outcome open_all(RecordOpener& opener, ByteView sealed, size_t arriving, size_t wanted) {
  Outcome outcome;
  Bytes buffer(wanted);
  for (;;) {
    const auto got = opener.take(buffer);
    outcome.is_broken = !got.ok();
    if (!got.ok()) return outcome;
    outcome.content.insert(outcome.content.end(), buffer.begin(),
                           buffer.begin() + static_cast<ptrdiff_t>(*got));
    if (*got > 0) continue;
    if (opener.has_content() || sealed.empty()) return outcome;
    const auto space = opener.space();
    REQUIRE(!space.empty());
    const size_t part = std::min({space.size(), arriving, sealed.size()});
    std::memcpy(space.data(), sealed.data(), part);
    opener.advance(part);
    sealed = sealed.subspan(part);
  }
}

Outcome open_all(ByteView sealed, uint64_t first = 0) {
  RecordOpener opener(key_of("one"), first);
  return open_all(opener, sealed, SIZE_MAX, kMost);
}

}  // namespace

TEST_CASE("content of every size comes back, however it is cut") {
  for (const size_t size : {size_t{1}, size_t{2}, size_t{4095}, kMost - 1, kMost, kMost + 1,
                            2 * kMost, 5 * kMost + 17}) {
    CAPTURE(size);
    const Bytes content = pattern(size);
    RecordSealer sealer(key_of("one"));
    const Bytes sealed = seal_all(sealer, content);
    CHECK(sealed.size() == size + (size + kMost - 1) / kMost * kFrame);
    for (const size_t arriving : {size_t{1}, size_t{7}, size_t{4096}, kMost, SIZE_MAX}) {
      if (arriving == 1 && size > kMost + 1) continue;  // a case that takes long
      for (const size_t wanted : {size_t{1}, size_t{1000}, kMost - 1, kMost, 3 * kMost}) {
        if (wanted == 1 && size > kMost + 1) continue;
        RecordOpener opener(key_of("one"));
        const Outcome outcome = open_all(opener, sealed, arriving, wanted);
        CHECK(!outcome.is_broken);
        CHECK(outcome.content == content);
      }
    }
  }
}

TEST_CASE("one record takes several parts, behind those that another has taken") {
  const Bytes first = pattern(5), second = pattern(kMost), third = pattern(9);
  const ByteView parts[] = {first, {}, second, third};
  RecordSealer sealer(key_of("one"));
  RecordOpener opener(key_of("one"));
  Bytes all, opened;
  for (const ByteView part : parts) all.insert(all.end(), part.begin(), part.end());
  for (size_t taken = 0; taken < all.size();) {
    const auto size = sealer.seal(parts, taken);
    REQUIRE(size.value_or(0) == std::min(kMost, all.size() - taken));
    taken += *size;
    const Outcome outcome = open_all(opener, sealer.output(), SIZE_MAX, kMost);
    REQUIRE(!outcome.is_broken);
    opened.insert(opened.end(), outcome.content.begin(), outcome.content.end());
    sealer.sent(sealer.output().size());
  }
  CHECK(opened == all);
}

TEST_CASE("the plain content is not in a record, and equal contents look different") {
  const std::string text = "a pattern that a capture would show";
  RecordSealer sealer(key_of("one"));
  const Bytes one = seal_one(sealer, as_bytes(text));
  const Bytes other = seal_one(sealer, as_bytes(text));
  CHECK(as_text(one).find(text.substr(0, 8)) == std::string_view::npos);
  CHECK(one != other);
}

TEST_CASE("a flipped bit anywhere in a record is found") {
  RecordSealer sealer(key_of("one"));
  const Bytes content = pattern(40);
  const Bytes before = seal_one(sealer, content);
  const Bytes sealed = seal_one(sealer, content);
  for (size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    CAPTURE(bit);
    Bytes changed = before;
    changed.insert(changed.end(), sealed.begin(), sealed.end());
    changed[before.size() + bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    const Outcome outcome = open_all(changed);
    CHECK(outcome.is_broken);
    CHECK(outcome.content == content);  // only the first record was opened
  }
}

TEST_CASE("a record that is repeated, reordered, left out or from elsewhere is found") {
  RecordSealer sealer(key_of("one")), other(key_of("two"));
  const Bytes a = seal_one(sealer, as_bytes("a")), b = seal_one(sealer, as_bytes("b"));
  const Bytes c = seal_one(sealer, as_bytes("c")), alien = seal_one(other, as_bytes("a"));
  const auto opened = [](std::initializer_list<const Bytes*> records) {
    Bytes sealed;
    for (const Bytes* record : records) sealed.insert(sealed.end(), record->begin(), record->end());
    const Outcome outcome = open_all(sealed);
    return cat(as_text(outcome.content), outcome.is_broken ? "!" : "");
  };
  CHECK(opened({&a, &b, &c}) == "abc");
  CHECK(opened({&a, &a}) == "a!");
  CHECK(opened({&a, &b, &a, &c}) == "ab!");
  CHECK(opened({&b, &a}) == "!");
  CHECK(opened({&a, &c}) == "a!");
  CHECK(opened({&alien}) == "!");
}

TEST_CASE("an error is final") {
  RecordSealer sealer(key_of("one"));
  Bytes bad = seal_one(sealer, as_bytes("a"));
  bad.back() ^= std::byte{1};
  RecordOpener opener(key_of("one"));
  CHECK(open_all(opener, bad, SIZE_MAX, 10).is_broken);
  CHECK(!opener.has_content());
  Bytes buffer(10);
  CHECK(!opener.take(buffer).ok());
}

TEST_CASE("a record that is cut gives nothing, at every place") {
  RecordSealer sealer(key_of("one"));
  const Bytes sealed = seal_one(sealer, pattern(300));
  for (size_t size = 0; size < sealed.size(); ++size) {
    const Outcome outcome = open_all(ByteView(sealed).first(size));
    CHECK(!outcome.is_broken);
    CHECK(outcome.content.empty());
  }
}

TEST_CASE("the key changes after a million records, on both ends at once") {
  constexpr uint64_t kThird = 3 * RecordCipher::kRecordsPerKey;
  RecordSealer sealer(key_of("one"), kThird - 1);
  const Bytes last = seal_one(sealer, as_bytes("a")), first = seal_one(sealer, as_bytes("b"));
  Bytes sealed = last;
  sealed.insert(sealed.end(), first.begin(), first.end());
  CHECK(as_text(open_all(sealed, kThird - 1).content) == "ab");
  const auto opens = [](uint64_t key, uint64_t nonce, ByteView record) {
    AesGcm cipher(HmacKey(key_of("one")).sign(ByteWriter().put(key).view()),
                  AesGcm::Direction::kOpen);
    std::byte plain;
    return cipher.open(nonce, record.subspan(RecordSealer::kHeader), &plain);
  };
  CHECK(opens(2, kThird - 1, last));
  CHECK(!opens(2, kThird, first));
  CHECK(opens(3, kThird, first));
}

TEST_CASE("no number is used twice: after the last one no record is sealed or opened") {
  RecordSealer sealer(key_of("one"), UINT64_MAX - 1);
  const Bytes last = seal_one(sealer, as_bytes("z"));
  const ByteView more = as_bytes("more");
  const auto refused = sealer.seal({&more, 1});
  REQUIRE(!refused.ok());
  CHECK(refused.error().message() ==
        "a link has no number for another record; start the job again");
  RecordOpener opener(key_of("one"), UINT64_MAX - 1);
  Bytes twice = last;
  twice.insert(twice.end(), last.begin(), last.end());
  const Outcome outcome = open_all(opener, twice, SIZE_MAX, 10);
  CHECK(as_text(outcome.content) == "z");
  CHECK(outcome.is_broken);
}

namespace {

// Two ends of one encrypted stream, over sockets with small buffers.
struct StreamPair {
  explicit StreamPair(const LinkKeys& keys, const LinkKeys& peer_keys) {
    int sockets[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) == 0);
    raw = sockets[0];
    const int room = 8192;
    for (const int socket : sockets) {
      ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    }
    REQUIRE(one.attach(GuardedFd(UniqueFd(sockets[0])), keys).ok());
    REQUIRE(other.attach(GuardedFd(UniqueFd(sockets[1])), peer_keys).ok());
  }

  net::EventLoop loop = std::move(net::EventLoop::open()).value();
  PeerStream one{loop, 1, 0}, other{loop, 0, 0};
  int raw = -1;  // the socket of `one`
};

}  // namespace

TEST_CASE("streams pass all bytes in order, in writes and reads of every size") {
  const Digest there = key_of("there"), back = key_of("back");
  StreamPair pair({there, back}, {back, there});
  const Bytes sent = pattern(1'000'000);
  Bytes received;
  size_t written = 0;
  for (uint32_t turn = 1; received.size() < sent.size(); ++turn) {
    REQUIRE(turn < 1'000'000);
    // A write may offer less than the previous write, which was not accepted.
    const size_t offered = std::min<size_t>(sent.size() - written, turn * 7919 % 100'003);
    written += pair.one.write_some(ByteView(sent).subspan(written, offered));
    Bytes buffer(1 + turn * 104729 % 90'001);
    const size_t got = pair.other.read_some(buffer);
    received.insert(received.end(), buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(got));
    pair.loop.dispatch();
  }
  CHECK(received == sent);
  CHECK(!pair.other.may_read());
  pair.one.close();
  pair.loop.dispatch();
  Bytes buffer(10);
  CHECK(pair.other.read_some(buffer) == 0);
  CHECK(pair.other.ended());
  CHECK(pair.other.end_reason() == 0);
}

TEST_CASE("a stream shows content that it holds, also after the peer has gone") {
  const Digest there = key_of("there"), back = key_of("back");
  StreamPair pair({there, back}, {back, there});
  CHECK(pair.one.write_some(as_bytes("abcdef")) == 6);
  pair.one.close();
  std::array<std::byte, 4> buffer;
  CHECK(pair.other.read_once(buffer) == 4);
  CHECK(pair.other.may_read());
  CHECK(!pair.other.ended());
  CHECK(pair.other.read_once(buffer) == 2);
  CHECK(pair.other.read_once(buffer) == 0);
  pair.loop.dispatch();
  CHECK(pair.other.read_once(buffer) == 0);
  CHECK(pair.other.ended());
}

TEST_CASE("a stream ends with EBADMSG at bytes that are none of the peer's records") {
  const Digest there = key_of("there"), back = key_of("back");
  StreamPair pair({there, back}, {back, there});
  CHECK(pair.one.write_some(as_bytes("abc")) == 3);
  const std::string forged(100, 'x');
  CHECK(::send(pair.raw, forged.data(), forged.size(), MSG_NOSIGNAL) == 100);
  Bytes buffer(200);
  CHECK(pair.other.read_some(buffer) == 3);
  CHECK(pair.other.ended());
  CHECK(pair.other.end_reason() == EBADMSG);
}
