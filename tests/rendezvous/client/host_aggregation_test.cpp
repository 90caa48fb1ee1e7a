#include "rendezvous/client/host_aggregation.h"

#include <doctest/doctest.h>

namespace hvd::rendezvous::host_aggregation {
namespace {

Bytes bytes(std::string_view text) { return to_bytes(text); }

TEST_CASE("a host's records arrive as they were, and what they share is sent once") {
  const std::string shared(1000, 'h');
  const Bytes one = pack({{0, bytes(shared + "0")}, {2, bytes(shared + "2")}});
  const Bytes other = pack({{1, bytes("")}, {3, bytes("three")}});
  CHECK(one.size() < 1100);
  const auto records = split(join({one, other}), 4);
  REQUIRE_MESSAGE(records.ok(), records.status().message());
  CHECK(*records ==
        std::vector<Bytes>{bytes(shared + "0"), {}, bytes(shared + "2"), bytes("three")});
}

TEST_CASE("records that lack a party, or have one twice or too many, are refused") {
  const Bytes host = pack({{0, bytes("a")}, {1, bytes("b")}});
  CHECK(split(join({host}), 3).status().message() == "the hosts' records lack party 2");
  CHECK_FALSE(split(join({host}), 1).ok());
  CHECK_FALSE(split(join({host, host}), 2).ok());
  CHECK_FALSE(split(ByteView(join({host})).first(20), 2).ok());
}

TEST_CASE("a name that all users see does not reveal the other") {
  const std::string store = "horovod-store-0123456789abcdef";
  const std::string records = aggregation_socket_name(store);
  CHECK(records == aggregation_socket_name(store));
  CHECK(records != aggregation_socket_name(store + "0"));
  CHECK(records.find("0123456789abcdef") == std::string::npos);
}

TEST_CASE("bytes pass through a file unchanged, and a pipe is no file") {
  const Bytes large(300'000, std::byte{7});
  const auto file = to_file(large);
  REQUIRE(file.ok());
  CHECK(*from_file(file->get()) == large);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const UniqueFd reading(ends[0]), writing(ends[1]);
  CHECK_FALSE(from_file(ends[0]).ok());
}

}  // namespace
}  // namespace hvd::rendezvous::host_aggregation
