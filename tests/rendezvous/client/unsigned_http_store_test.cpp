#include "rendezvous/client/unsigned_http_store.h"

#include <doctest/doctest.h>

#include <thread>

#include "base/text.h"
#include "rendezvous/running_server.h"

namespace hvd::rendezvous {
namespace {

Deadline in_time() { return Deadline::after_seconds(200); }

}  // namespace

TEST_CASE("a store of GET, PUT and DELETE keeps values, waits, and exchanges records") {
  RunningServer server("tcp:127.0.0.1:0", 0, {}, ScopeSizes());
  UnsignedHttpStore store(server.endpoint());
  CHECK(store.get("a/b", in_time()).status().code() == Code::kNotFound);
  const Bytes large(3 << 20, std::byte{7});
  REQUIRE(store.set("a/b", large, in_time()).ok());
  CHECK(*store.get("a/b", in_time()) == large);
  REQUIRE(store.set("empty", {}, in_time()).ok());
  CHECK(store.get("empty", in_time())->empty());
  REQUIRE(store.remove("a/b", in_time()).ok());
  CHECK(store.get("a/b", in_time()).status().code() == Code::kNotFound);

  std::thread setter([&] { CHECK(store.set("later", as_bytes("v"), in_time()).ok()); });
  CHECK(as_text(*store.wait("later", in_time())) == "v");
  setter.join();
  const auto late = store.wait("never", Deadline::after_seconds(0.1));
  CHECK(late.status().code() == Code::kDeadlineExceeded);
  CHECK(late.status().message().find("'never'") != std::string::npos);

  std::thread other([&] {
    const auto seen = store.exchange("x", {1, 2, {0}}, as_bytes("one"), in_time());
    REQUIRE(seen.ok());
    CHECK(as_text(seen->at(0)) == "zero");
  });
  const auto seen = store.exchange("x", {0, 2, {}}, as_bytes("zero"), in_time());
  other.join();
  REQUIRE(seen.ok());
  REQUIRE(seen->size() == 2);
  CHECK(as_text(seen->at(1)) == "one");
  const auto missing = store.exchange("y", {0, 3, {2}}, {}, Deadline::after_seconds(0.1));
  CHECK(missing.status().message().find("party 2 of 3") != std::string::npos);
}

TEST_CASE("a request that the server lacks is an error, and so is a missing server") {
  RunningServer strict;  // refuses unsigned requests
  UnsignedHttpStore refused(strict.endpoint());
  CHECK(refused.set("k", {}, in_time()).code() == Code::kFailedPrecondition);
  CHECK(refused.compare_and_set("k", {}, {}, in_time()).status().code() == Code::kUnimplemented);
  CHECK(refused.set("", {}, in_time()).code() == Code::kInvalidArgument);
  UnsignedHttpStore nobody(*net::parse_endpoint("tcp:127.0.0.1:1"));
  const Status gone = nobody.set("k", {}, Deadline::after_seconds(0.2));
  CHECK(gone.message().find("127.0.0.1:1") != std::string::npos);
}

}  // namespace hvd::rendezvous
