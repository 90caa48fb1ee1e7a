// Which names keep an id, and that all ranks agree on ids while ids change.
#include <doctest/doctest.h>

#include <deque>
#include <random>

#include "runtime/negotiation/response_cache.h"
#include "runtime/ranks.h"

using hvd::Status;
using hvd::runtime::CachePolicy;
using hvd::runtime::ResponseCache;
using hvd::test::Links;
using hvd::test::Ranks;
using hvd::test::RanksOptions;
using hvd::test::Work;

namespace {

std::string name_of(int i) { return "n" + std::to_string(i); }

// Simulates agreements on names. agree() returns whether a name had an id.
struct Root {
  explicit Root(uint32_t capacity) : policy(capacity) {}
  bool agree(const std::string& name) {
    if (const auto found = ids.find(name); found != ids.end()) {
      policy.use(found->second);
      return true;
    }
    uint32_t forgotten = 0;
    const uint32_t id = policy.admit(name, &forgotten);
    std::erase_if(ids, [&](const auto& one) { return one.second == forgotten; });
    if (id != 0) ids[name] = id;
    return false;
  }
  CachePolicy policy;
  std::map<std::string, uint32_t> ids;
};

}  // namespace

TEST_CASE("a step of more names than there is room for keeps as many as fit") {
  Root root(100);
  int hits = 0;
  for (int step = 0; step < 20; ++step) {
    hits = 0;
    for (int i = 0; i < 150; ++i) hits += root.agree(name_of(i)) ? 1 : 0;
  }
  CHECK(hits == 100);
}

TEST_CASE("names that are used no more make room, and their ids mean them only") {
  Root root(10);
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < 10; ++i) root.agree(name_of(i));
  }
  const uint32_t old = root.ids.at(name_of(0));
  for (int step = 0; step < 6; ++step) {
    for (int i = 10; i < 20; ++i) root.agree(name_of(i));
  }
  CHECK(root.ids.size() == 10);
  CHECK(!root.ids.contains(name_of(0)));
  for (const auto& [name, id] : root.ids) {
    CHECK(id != old);
    CHECK(ResponseCache::slot_of(id) <= 10);
  }
}

TEST_CASE("without room no name gets an id") {
  Root root(0);
  for (int i = 0; i < 5; ++i) CHECK(!root.agree("w"));
}

TEST_CASE("the old name of an id is known until all ranks that may announce it know the new one") {
  ResponseCache cache;
  hvd::runtime::CacheEntry* entry = cache.put(1, "a");
  REQUIRE(entry != nullptr);
  CHECK(cache.put(1, "b") == nullptr);
  cache.forget(entry, 7);
  CHECK(cache.find(1U) == nullptr);
  REQUIRE(cache.find_forgotten(1) != nullptr);
  CHECK(cache.find_forgotten(1)->text == "a");
  const uint32_t next = ResponseCache::id_after(1);
  CHECK(cache.put(next, "b") != nullptr);
  CHECK(cache.find(next)->text == "b");
  cache.bury(7);
  CHECK(cache.find_forgotten(1) != nullptr);
  cache.bury(8);
  CHECK(cache.find_forgotten(1) == nullptr);
}

TEST_CASE("with little room, names and shapes that change come out right in any order") {
  RanksOptions options;
  SUBCASE("over memory links of several machines") { options.machines = {0, 0, 1, 1, 2, 2}; }
  SUBCASE("over the built-in links") {
    if (!hvd::test::has_builtin_links()) return;
    options.links = Links::kBuiltin;
  }
  REQUIRE(options.settings.set("cache_capacity", "8").ok());
  constexpr int kSize = 6;
  Ranks ranks(kSize, options);
  for (const Status& status : ranks.start_status) REQUIRE_MESSAGE(status.ok(), status.message());
  ranks.each([&](int rank) {
    std::mt19937 own(static_cast<unsigned>(rank) + 1);
    std::mt19937 common(9);
    for (int step = 0; step < 60; ++step) {
      // A moving window of names; some names change shape or operation.
      std::deque<Work> works;
      std::vector<int> order;
      for (int i = 0; i < 14; ++i) order.push_back(i + step / 10 * 5);
      std::vector<size_t> counts(order.size());
      for (size_t& count : counts) count = common() % 5 == 0 ? 4 : 3;
      const int32_t op = common() % 8 == 0 ? HVD_BROADCAST : HVD_ALLREDUCE;
      std::vector<size_t> mine(order.size());
      for (size_t i = 0; i < mine.size(); ++i) mine[i] = i;
      std::shuffle(mine.begin(), mine.end(), own);
      for (const size_t i : mine) {
        works.emplace_back(op, name_of(order[i]), std::vector<double>(counts[i], rank + 1),
                           HVD_FLOAT64);
        works.back().submission.root_rank = 2;
        REQUIRE(works.back().submit(ranks[rank]).ok());
      }
      for (Work& work : works) {
        const Status status = work.finish(ranks[rank]);
        REQUIRE_MESSAGE(status.ok(), status.message());
        CHECK(work.result<double>().back() == (op == HVD_BROADCAST ? 3 : kSize * (kSize + 1) / 2));
      }
    }
  });
}

TEST_CASE("more names in a step than fit: those that fit are announced short, at every step") {
  RanksOptions options;
  REQUIRE(options.settings.set("cache_capacity", "20").ok());
  Ranks ranks(2, options);
  for (const Status& status : ranks.start_status) REQUIRE(status.ok());
  const auto steps = [&](int count) {
    ranks.each([&](int rank) {
      for (int step = 0; step < count; ++step) {
        std::deque<Work> works;
        for (int i = 0; i < 30; ++i) {
          works.emplace_back(HVD_ALLREDUCE, name_of(i), std::vector<float>{1}, HVD_FLOAT32);
          REQUIRE(works.back().submit(ranks[rank]).ok());
        }
        for (Work& work : works) REQUIRE(work.finish(ranks[rank]).ok());
      }
    });
  };
  steps(4);
  const auto before = ranks[1].counts().short_announcements;
  steps(5);
  CHECK(ranks[1].counts().short_announcements - before == 5 * 20);
}
