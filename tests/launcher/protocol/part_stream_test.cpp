#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/secrets/secret.h"
#include "launcher/protocol/staged_parts.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

constexpr Digest kPartKey{std::byte{1}};
constexpr PartNonces kPartNonces{{std::byte{2}}, {std::byte{3}}};

}  // namespace

TEST_CASE("a request without the key is refused, and one of another connection") {
  const Bytes request = make_part_request(kPartKey, kPartNonces);
  REQUIRE(request.size() == kRequestSize);
  CHECK(check_part_request(kPartKey, kPartNonces.of_server, request) == kPartNonces.of_client);
  CHECK(!check_part_request({}, kPartNonces.of_server, request));
  CHECK(!check_part_request(kPartKey, {}, request));
  CHECK(!check_part_request(kPartKey, kPartNonces.of_server, ByteView(request).first(8)));
  for (size_t i = 0; i < request.size(); ++i) {
    Bytes changed = request;
    changed[i] ^= std::byte{1};
    CHECK(!check_part_request(kPartKey, kPartNonces.of_server, changed));
  }
}

TEST_CASE("parts arrive in any pieces, and in the order in which they were sent") {
  PartSealer sealer(kPartKey, kPartNonces);
  const std::string text(kMostStaged, 'x');
  Bytes sent = sealer.seal({StageKind::kFile, 0600, "a", text});
  const Bytes second = sealer.seal({});
  sent.insert(sent.end(), second.begin(), second.end());
  PartOpener opener(kPartKey, kPartNonces);
  std::vector<StagePart> parts;
  for (size_t at = 0; at < sent.size(); at += 1000) {
    opener.feed(ByteView(sent).subspan(at, std::min<size_t>(1000, sent.size() - at)));
    for (;;) {
      auto part = opener.next();
      REQUIRE(part.ok());
      if (!*part) break;
      parts.push_back(**part);
    }
  }
  REQUIRE(parts.size() == 2);
  CHECK((parts[0].kind == StageKind::kFile && parts[0].path == "a" && parts[0].bytes == text));
  CHECK((parts[1].kind == StageKind::kEnd && parts[1].bytes.empty()));
  // Parts in another order, of another connection, or with a changed byte are refused.
  const auto is_refused = [](const PartNonces& nonces, ByteView bytes) {
    PartOpener other(kPartKey, nonces);
    other.feed(bytes);
    return !other.next().ok();
  };
  CHECK(is_refused(kPartNonces, second));
  const Bytes first = PartSealer(kPartKey, kPartNonces).seal({StageKind::kFile, 0600, "a", "text"});
  CHECK(!is_refused(kPartNonces, first));
  CHECK(is_refused({kPartNonces.of_server, {}}, first));
  for (size_t i = sizeof(uint32_t); i < first.size(); ++i) {
    Bytes changed = first;
    changed[i] ^= std::byte{1};
    CHECK(is_refused(kPartNonces, changed));
  }
  const Bytes endless(4, std::byte{0xff}), tiny(4, std::byte{0});
  CHECK(is_refused(kPartNonces, endless));
  CHECK(is_refused(kPartNonces, tiny));
  // Refuses another kind of message, even with a valid tag.
  const Bytes ping = encode(Ping{1});
  const uint64_t number = 0;
  const std::string_view raw(reinterpret_cast<const char*>(&number), sizeof number);
  ByteWriter record;
  record.put(static_cast<uint32_t>(ping.size() + sizeof(Digest))).put_raw(ping);
  record.put_raw(part_key(kPartKey, kPartNonces).sign({raw, as_text(ping)}));
  CHECK(is_refused(kPartNonces, record.take()));
}

TEST_CASE("parts of files come as far as their bytes are there, and end with the digest of all") {
  const std::string long_text(kMostStaged + 3, 'x');
  std::vector<StagedEntry> entries = {
      {.mode = 0600, .path = "a", .size = long_text.size(), .text = long_text},
      {.mode = 0600, .path = "empty"},
      {.mode = 0600, .path = "b", .size = 2, .text = "ok", .digest = sha256(as_bytes("no"))}};
  entries[2].remedy = "say no";
  StagedParts parts(entries, "--flag");
  const auto is_next = [&](uint64_t until, StageKind kind, std::string_view path, size_t size) {
    const auto part = parts.next(until);
    return part.ok() && *part && (*part)->kind == kind && (*part)->path == path &&
           (*part)->bytes.size() == size;
  };
  CHECK(!*parts.next(0));
  CHECK(is_next(7, StageKind::kFile, "a", 7));
  CHECK(!*parts.next(7));
  CHECK(is_next(1 << 20, StageKind::kMore, "a", kMostStaged - 4));
  CHECK(is_next(long_text.size(), StageKind::kFile, "empty", 0));
  CHECK(!*parts.next(long_text.size()));
  CHECK(!parts.has_ended());
  CHECK(parts.next().status().message() == "--flag: b has changed since it was resolved: say no");
  entries.pop_back();
  REQUIRE(add_digest(entries, "--flag").ok());
  StagedParts last(entries, "--flag", 2);
  const auto end = last.next();
  REQUIRE(*end);
  CHECK(((*end)->kind == StageKind::kEnd && (*end)->bytes.size() == sizeof(Digest)));
  CHECK(!*last.next());
  CHECK(last.has_ended());
}
