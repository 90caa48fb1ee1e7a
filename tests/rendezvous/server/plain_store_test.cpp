#include "rendezvous/server/plain_store.h"

#include <doctest/doctest.h>

#include "base/text.h"

namespace hvd::rendezvous {
namespace {

class Plain {
 public:
  explicit Plain(ScopeSizes sizes = {}) : store_(std::move(sizes)) {}
  int put(std::string_view target, std::string_view value = "x") {
    return store_.answer("PUT", target, to_bytes(value)).status;
  }
  int remove(std::string_view target) { return store_.answer("DELETE", target, {}).status; }
  // The value, or the status when there is none.
  std::string get(std::string_view target) {
    const auto answer = store_.answer("GET", target, {});
    return answer.status == 200 ? std::string(as_text(answer.value->bytes)) : cat(answer.status);
  }
  PlainStore& store() { return store_; }

 private:
  PlainStore store_;
};

}  // namespace

TEST_CASE("plain values are kept by scope and key, byte for byte") {
  Plain plain;
  CHECK(plain.get("/s/k") == "404");
  CHECK(plain.put("/s/k", std::string_view("\0\xff", 2)) == 200);
  CHECK(plain.get("/s/k") == std::string_view("\0\xff", 2));
  CHECK(plain.put("/s/%2F?x=1", "raw") == 200);
  CHECK(plain.get("/s/%2F?x=1") == "raw");
  CHECK(plain.get("/s/%2F") == "404");
  CHECK(plain.put("/s/empty", "") == 200);
  CHECK(plain.get("/s/empty").empty());
  CHECK(plain.remove("/unknown/k") == 200);
  CHECK(plain.remove("/s/k") == 200);
  CHECK(plain.get("/s/k") == "404");
}

TEST_CASE("plain targets have two segments, and methods are three") {
  Plain plain;
  for (const char* target : {"/", "/s", "/s/", "//k", "/s/k/more", "s/k", ""}) {
    CAPTURE(target);
    CHECK(plain.get(target) == "400");
    CHECK(plain.put(target) == 400);
  }
  CHECK(plain.store().answer("POST", "/s/k", {}).status == 501);
  CHECK(plain.store().answer("HEAD", "/s/k", {}).status == 501);
}

TEST_CASE("a planned scope is emptied when all its members have left, and no other with it") {
  Plain plain({{"global", 2}, {"local_a", 2}});
  for (const char* scope : {"/global", "/local_a"}) {
    plain.put(cat(scope, "/0"));
    plain.put(cat(scope, "/1"));
    plain.remove(cat(scope, "/0"));
    plain.remove(cat(scope, "/0"));  // twice is once
    CHECK(plain.get(cat(scope, "/0")) == "x");
  }
  plain.remove("/global/1");
  CHECK(plain.get("/global/0") == "404");
  CHECK(plain.get("/local_a/0") == "x");  // one has left, and that is not forgotten
  plain.remove("/local_a/1");
  CHECK(plain.get("/local_a/1") == "404");
  CHECK(plain.store().scope_count() == 0);
}

TEST_CASE("a scope of members without a plan counts their names") {
  Plain plain;
  for (const char* key : {"rank_0", "rank_1", "rank_2", "0", "1", "2"}) {
    plain.put(cat("/cross_0/", key));
  }
  plain.remove("/cross_0/2");
  plain.remove("/cross_0/0");
  CHECK(plain.get("/cross_0/2") == "x");
  plain.remove("/cross_0/1");
  CHECK(plain.get("/cross_0/rank_0") == "404");
  // A set of ranks is a scope like any other.
  const std::string set = "/global_process_set_hash_7d48533536350577";
  plain.put(set + "/rank_0");
  plain.put(set + "/rank_1");
  plain.put(set + "/0");
  plain.remove(set + "/0");
  CHECK(plain.get(set + "/0") == "404");
  CHECK(plain.get(set + "/rank_0") == "x");
}

TEST_CASE("who comes back before the last has left meets nobody's old address") {
  Plain plain({{"global", 2}});
  const auto meet = [&](const char* rank) {
    plain.put(cat("/global/rank_", rank), "host");
    plain.put(cat("/global/", rank), "old");
  };
  meet("0");
  meet("1");
  plain.remove("/global/0");
  plain.put("/global/rank_0", "host");  // rank 0 begins anew
  plain.put("/global/0", "new");
  CHECK(plain.get("/global/1") == "404");
  plain.remove("/global/1");  // rank 1 leaves the meeting before
  CHECK(plain.get("/global/0") == "new");
  plain.put("/global/rank_1", "host");
  plain.put("/global/1", "new");
  plain.remove("/global/0");
  CHECK(plain.get("/global/1") == "new");
  plain.remove("/global/1");
  CHECK(plain.get("/global/0") == "404");
  CHECK(plain.store().scope_count() == 0);
}

}  // namespace hvd::rendezvous
