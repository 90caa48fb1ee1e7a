#include "rendezvous/server/unsigned_store.h"

#include <doctest/doctest.h>

#include "base/text.h"

namespace hvd::rendezvous {
namespace {

class UnsignedClient {
 public:
  explicit UnsignedClient(ScopeSizes sizes = {}) : store_(std::move(sizes)) {}
  int put(std::string_view target, std::string_view value = "x") {
    return store_.answer("PUT", target, to_bytes(value)).status;
  }
  int remove(std::string_view target) { return store_.answer("DELETE", target, {}).status; }
  // The value, or the status if there is no value.
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

}  // namespace hvd::rendezvous
