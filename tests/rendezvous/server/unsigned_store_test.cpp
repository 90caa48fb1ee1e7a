#include "rendezvous/server/unsigned_store.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "rendezvous/raw_client.h"

namespace hvd::rendezvous {
namespace {

class UnsignedClient {
 public:
  explicit UnsignedClient(ScopeSizes sizes = {}, UnsignedLimits limits = {})
      : store_(std::move(sizes), limits) {}
  int put(std::string_view target, std::string_view value = "x") {
    return store_.answer("PUT", target, to_bytes(value)).status;
  }
  int remove(std::string_view target) { return store_.answer("DELETE", target, {}).status; }
  // Returns the value, or the status if there is no value.
  std::string get(std::string_view target) {
    const auto answer = store_.answer("GET", target, {});
    return answer.status == 200 ? std::string(as_text(answer.value->bytes)) : cat(answer.status);
  }
  UnsignedStore& store() { return store_; }

 private:
  UnsignedStore store_;
};

}  // namespace

TEST_CASE("unsigned values are kept by scope and key, byte for byte") {
  UnsignedClient client;
  CHECK(client.get("/s/k") == "404");
  CHECK(client.put("/s/k", std::string_view("\0\xff", 2)) == 200);
  CHECK(client.get("/s/k") == std::string_view("\0\xff", 2));
  CHECK(client.put("/s/%2F?x=1", "raw") == 200);
  CHECK(client.get("/s/%2F?x=1") == "raw");
  CHECK(client.get("/s/%2F") == "404");
  CHECK(client.put("/s/empty", "") == 200);
  CHECK(client.get("/s/empty").empty());
  CHECK(client.remove("/unknown/k") == 200);
  CHECK(client.remove("/s/k") == 200);
  CHECK(client.get("/s/k") == "404");
}

TEST_CASE("unsigned targets have two segments, and methods are three") {
  UnsignedClient client;
  for (const char* target : {"/", "/s", "/s/", "//k", "/s/k/more", "s/k", ""}) {
    CAPTURE(target);
    CHECK(client.get(target) == "400");
    CHECK(client.put(target) == 400);
  }
  CHECK(client.store().answer("POST", "/s/k", {}).status == 501);
  CHECK(client.store().answer("HEAD", "/s/k", {}).status == 501);
}

TEST_CASE("a planned scope is emptied when all its members have left, and no other with it") {
  UnsignedClient client({{"global", 2}, {"local_a", 2}});
  for (const char* scope : {"/global", "/local_a"}) {
    client.put(cat(scope, "/0"));
    client.put(cat(scope, "/1"));
    client.remove(cat(scope, "/0"));
    client.remove(cat(scope, "/0"));  // a repeated DELETE counts once
    CHECK(client.get(cat(scope, "/0")) == "x");
  }
  client.remove("/global/1");
  CHECK(client.get("/global/0") == "404");
  CHECK(client.get("/local_a/0") == "x");  // member 0 has left, member 1 has not
  client.remove("/local_a/1");
  CHECK(client.get("/local_a/1") == "404");
  CHECK(client.store().scope_count() == 0);
}

TEST_CASE("a scope of members without a plan counts their names") {
  UnsignedClient client;
  for (const char* key : {"rank_0", "rank_1", "rank_2", "0", "1", "2"}) {
    client.put(cat("/cross_0/", key));
  }
  client.remove("/cross_0/2");
  client.remove("/cross_0/0");
  CHECK(client.get("/cross_0/2") == "x");
  client.remove("/cross_0/1");
  CHECK(client.get("/cross_0/rank_0") == "404");
  // The scope of a process set has no members: DELETE removes one key.
  const std::string set = "/global_process_set_hash_7d48533536350577";
  client.put(set + "/rank_0");
  client.put(set + "/rank_1");
  client.put(set + "/0");
  client.remove(set + "/0");
  CHECK(client.get(set + "/0") == "404");
  CHECK(client.get(set + "/rank_0") == "x");
}

TEST_CASE("a member that returns before the last has left finds no old address") {
  UnsignedClient client({{"global", 2}});
  const auto meet = [&](const char* rank) {
    client.put(cat("/global/rank_", rank), "host");
    client.put(cat("/global/", rank), "old");
  };
  meet("0");
  meet("1");
  client.remove("/global/0");
  client.put("/global/rank_0", "host");  // rank 0 begins the next rendezvous
  client.put("/global/0", "new");
  CHECK(client.get("/global/1") == "404");
  client.remove("/global/1");  // rank 1 leaves the earlier rendezvous
  CHECK(client.get("/global/0") == "new");
  client.put("/global/rank_1", "host");
  client.put("/global/1", "new");
  client.remove("/global/0");
  CHECK(client.get("/global/1") == "new");
  client.remove("/global/1");
  CHECK(client.get("/global/0") == "404");
  CHECK(client.store().scope_count() == 0);
}

TEST_CASE("unsigned values, their keys and those that are being sent have a total") {
  UnsignedClient client({}, {.value_bytes = 4000, .total_bytes = 10'000});
  const std::string value(4000, 'v');
  CHECK(client.put("/s/a", value + "v") == 413);
  CHECK(client.put("/s/a", value) == 200);
  CHECK(client.put("/s/b", value) == 200);
  CHECK(client.put("/s/c", value) == 507);
  CHECK(client.get("/s/c") == "404");
  CHECK(client.get("/s/b") == value);
  CHECK(client.put("/s/b", "small") == 200);
  CHECK(client.put("/s/c", value) == 200);
  // A pending reply holds its value, also after the key is removed.
  auto reply = client.store().answer("GET", "/s/c", {});
  client.remove("/s/c");
  CHECK(client.put("/s/d", value) == 507);
  reply = {};
  CHECK(client.put("/s/d", value) == 200);
  for (const char* key : {"a", "b", "d"}) client.remove(cat("/s/", key));
  CHECK(client.store().taken_bytes() == 0);
  // Keys without a value take space as well.
  int stored = 0;
  while (client.put(cat("/s/", stored, std::string(200, 'k')), "") == 200) ++stored;
  CHECK(stored < 30);
  // Space for a body is reserved before its bytes arrive.
  UnsignedClient other({}, {.value_bytes = 4000, .total_bytes = 10'000});
  auto arriving = other.store().take_room(4000), second = other.store().take_room(4000);
  CHECK(second != nullptr);
  CHECK(other.store().take_room(4000) == nullptr);
  CHECK(other.put("/s/a", value) == 507);
  arriving = second = nullptr;
  CHECK(other.put("/s/a", value) == 200);
}

TEST_CASE("a job of many workers has room for an address of each pair of them") {
  CHECK(UnsignedClient({{"global", 8}}).store().limits().total_bytes == size_t{256} << 20);
  CHECK(UnsignedClient({{"global", 4096}}).store().limits().total_bytes == size_t{4} << 30);
}

TEST_CASE("members that come back again and again do not fill the memory") {
  UnsignedClient client({}, {.value_bytes = 4000, .total_bytes = 100'000});
  int turns = 0;
  for (int status = 200; status == 200 && turns < 1000; ++turns) {
    // Member 0 leaves and returns repeatedly, and each time another member has not left yet.
    client.put("/global/rank_0");
    client.put(cat("/global/rank_", 1 + turns));
    client.remove("/global/0");
    status = client.put("/global/0");
  }
  CHECK(turns < 1000);
  CHECK(client.store().taken_bytes() <= 100'000);
}

TEST_CASE("a server refuses too large unsigned bodies before they arrive") {
  RunningServer server("tcp:127.0.0.1:0", 0, {}, ScopeSizes());
  for (const char* method : {"PUT", "GET"}) {
    RawClient large(server.endpoint());
    large.send(net::request_head(method, "/s/k", {}, (size_t{16} << 20) + 1));
    CHECK(large.receive() == 413);
    CHECK(large.body() == "a value may have 16777216 bytes, not 16777217\n");
  }
  // The bodies do not arrive, and one of them exceeds the total of 256 MiB.
  std::vector<std::unique_ptr<RawClient>> slow;
  std::vector<pollfd> entries;
  for (int i = 0; i < 17; ++i) {
    slow.push_back(std::make_unique<RawClient>(server.endpoint()));
    slow.back()->send(net::request_head("PUT", cat("/s/", i), {}, size_t{16} << 20));
    entries.push_back({slow.back()->fd(), POLLIN, 0});
  }
  REQUIRE(::poll(entries.data(), entries.size(), 10'000) == 1);
  for (size_t i = 0; i < slow.size(); ++i) {
    if (entries[i].revents == 0) continue;
    CHECK(slow[i]->receive() == 507);
    CHECK(slow[i]->body().find("may take 268435456 bytes") != std::string::npos);
  }
  slow.clear();
  server.await_sessions(0);
  RawClient next(server.endpoint());
  next.send(net::request_head("PUT", "/s/next", {}, 2) + "ok");
  CHECK(next.receive() == 200);
}

TEST_CASE("a server serves unsigned requests of this host to its own user and to root alone") {
  if (::geteuid() != 0) {
    MESSAGE("SKIP: only root can become another user");
    return;
  }
  constexpr uid_t kOther = 65534;
  for (const std::string& address : {std::string("tcp:127.0.0.1:0"), std::string("tcp:[::]:0"),
                                     cat("unix:@horovod-unsigned-test-", ::getpid())}) {
    CAPTURE(address);
    const auto where = net::numeric_address(*net::parse_endpoint(address));
    if (where && !net::listen_on(*where).ok()) continue;  // this host has no IPv6
    RunningServer server(address, 0, {}, ScopeSizes());
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      std::string said = "cannot become another user";
      if (::setuid(kOther) == 0) {
        RawClient stranger(server.endpoint());
        stranger.send(net::request_head("PUT", "/s/k", {}, 2) + "no");
        said = cat(stranger.receive(), " ", stranger.body());
      }
      (void)!::write(ends[1], said.data(), said.size());
      ::_exit(0);
    }
    ::close(ends[1]);
    char said[1000] = "";
    CHECK(::read(ends[0], said, sizeof said - 1) > 0);
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    CHECK(said ==
          std::string("403 this connection comes from user 65534 of this host, where only user 0 "
                      "and root are served\n"));
    RawClient own(server.endpoint());
    own.send(net::request_head("GET", "/s/k", {}, 0));
    CHECK(own.receive() == 404);
  }
}

}  // namespace hvd::rendezvous
