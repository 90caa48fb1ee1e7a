// The tests that every store must pass, and those that every server must pass, through HttpStore. A fixture type
// returns two clients of one empty store: `first()` and `second()`. A test file instantiates them with
// HVD_STORE_CONFORMANCE("name", Fixture) and HVD_SERVER_CONFORMANCE("name", Fixture).
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "rendezvous/client/http_store.h"
#include "rendezvous/store/store.h"

namespace hvd::rendezvous {

inline Deadline soon() { return Deadline::after_seconds(200); }
inline Deadline shortly() { return Deadline::after_seconds(0.5); }
inline std::string text_of(const Result<Bytes>& value) {
  return value.ok() ? std::string(as_text(*value)) : "failed: " + value.status().message();
}

// Increments a decimal number, which begins at 0, this many times; returns false after an error.
// Other clients may increment it at the same time.
inline bool count_up(Store& store, std::string_view key, int times) {
  std::optional<Bytes> seen;
  for (int done = 0; done < times;) {
    const int64_t number = seen ? parse_int(as_text(*seen)).value_or(-1000) : 0;
    std::optional<ByteView> expected;
    if (seen) expected = *seen;
    auto swap = store.compare_and_set(key, expected, as_bytes(std::to_string(number + 1)), soon());
    if (!swap.ok()) return false;
    done += swap->swapped;
    seen = std::move(swap->value);
  }
  return true;
}

inline void check_values(Store& a, Store& b) {
  SUBCASE("a client gets the value that another client set, the last value wins") {
    REQUIRE(a.set("k", as_bytes("1"), soon()).ok());
    CHECK(text_of(b.get("k", soon())) == "1");
    REQUIRE(b.set("k", as_bytes("2"), soon()).ok());
    CHECK(text_of(a.get("k", soon())) == "2");
  }
  SUBCASE("a key that is not there is not found, and the sentence names it") {
    const auto value = a.get("absent", soon());
    CHECK(value.status().code() == Code::kNotFound);
    CHECK(value.status().message().find("absent") != std::string::npos);
  }
  SUBCASE("keys and values are any bytes") {
    std::string all;
    for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
    REQUIRE(a.set(all, as_bytes(all), soon()).ok());
    CHECK(text_of(b.get(all, soon())) == all);
    REQUIRE(a.set("/", {}, soon()).ok());
    CHECK(text_of(b.get("/", soon())).empty());
    REQUIRE(a.set("a/../b?c=d&e#%2F", as_bytes("x"), soon()).ok());
    CHECK(text_of(b.get("a/../b?c=d&e#%2F", soon())) == "x");
    CHECK(b.get("b", soon()).status().code() == Code::kNotFound);
  }
  SUBCASE("a key that is removed is gone, and removing it again is fine") {
    REQUIRE(a.set("k", as_bytes("1"), soon()).ok());
    CHECK(b.remove("k", soon()).ok());
    CHECK(a.get("k", soon()).status().code() == Code::kNotFound);
    CHECK(b.remove("k", soon()).ok());
  }
  SUBCASE("an empty or overlong key is refused") {
    CHECK(a.set("", as_bytes("1"), soon()).code() == Code::kInvalidArgument);
    CHECK(a.get("", soon()).status().code() == Code::kInvalidArgument);
    CHECK(a.wait("", soon()).status().code() == Code::kInvalidArgument);
    CHECK(a.remove("", soon()).code() == Code::kInvalidArgument);
    const std::string overlong(kMaxKeyBytes + 1, 'k');
    CHECK(a.set(overlong, {}, soon()).code() == Code::kInvalidArgument);
    CHECK(a.compare_and_set(overlong, {}, {}, soon()).status().code() == Code::kInvalidArgument);
  }
  SUBCASE("a value of some megabytes comes back whole") {
    Bytes large(3'000'001);
    for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<std::byte>(i * 7);
    REQUIRE(a.set("large", large, soon()).ok());
    const auto value = b.get("large", soon());
    REQUIRE(value.ok());
    CHECK(*value == large);
  }
}

inline void check_waits(Store& a, Store& b) {
  SUBCASE("a wait for a key that is there returns at once, even when its time is over") {
    REQUIRE(a.set("k", as_bytes("1"), soon()).ok());
    CHECK(text_of(b.wait("k", soon())) == "1");
    CHECK(text_of(b.wait("k", Deadline::after_seconds(0))) == "1");
  }
  SUBCASE("waits are woken by another client's set") {
    std::vector<std::future<std::string>> waits;
    for (int i = 0; i < 4; ++i) {
      waits.push_back(std::async(std::launch::async,
                                 [&, i] { return text_of((i % 2 ? a : b).wait("k", soon())); }));
    }
    REQUIRE(a.set("unrelated", as_bytes("0"), soon()).ok());
    REQUIRE(a.set("k", as_bytes("v"), soon()).ok());
    for (auto& wait : waits) CHECK(wait.get() == "v");
  }
  SUBCASE("a wait whose deadline passes names the key, and the store goes on") {
    const auto value = a.wait("never-set", shortly());
    CHECK(value.status().code() == Code::kDeadlineExceeded);
    CHECK(value.status().message().find("never-set") != std::string::npos);
    REQUIRE(a.set("never-set", as_bytes("after all"), soon()).ok());
    CHECK(text_of(a.wait("never-set", soon())) == "after all");
  }
}

inline void check_swaps(Store& a, Store& b) {
  SUBCASE("a key that is not there is swapped in by the first who expects nothing") {
    const auto first = a.compare_and_set("k", {}, as_bytes("1"), soon());
    REQUIRE(first.ok());
    CHECK(first->swapped);
    CHECK(first->value == to_bytes("1"));
    const auto second = b.compare_and_set("k", {}, as_bytes("2"), soon());
    REQUIRE(second.ok());
    CHECK_FALSE(second->swapped);
    CHECK(second->value == to_bytes("1"));
    CHECK(text_of(b.get("k", soon())) == "1");
  }
  SUBCASE("the value must be the expected one, and an empty value is one") {
    const auto absent = a.compare_and_set("k", as_bytes("x"), as_bytes("1"), soon());
    REQUIRE(absent.ok());
    CHECK_FALSE(absent->swapped);
    CHECK_FALSE(absent->value);
    REQUIRE(a.set("k", {}, soon()).ok());
    CHECK_FALSE(b.compare_and_set("k", {}, as_bytes("1"), soon())->swapped);
    CHECK(b.compare_and_set("k", as_bytes(""), as_bytes("1"), soon())->swapped);
    CHECK(a.compare_and_set("k", as_bytes("1"), as_bytes(""), soon())->swapped);
    CHECK(text_of(b.get("k", soon())).empty());
  }
  SUBCASE("swaps of many threads lose nothing, and wake who waits") {
    auto wait = std::async(std::launch::async, [&] { return b.wait("n", soon()).ok(); });
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] { CHECK(count_up(i % 2 ? a : b, "n", 25)); });
    }
    for (auto& thread : threads) thread.join();
    CHECK(text_of(a.get("n", soon())) == "100");
    CHECK(wait.get());
  }
  SUBCASE("an empty key is refused") {
    CHECK(a.compare_and_set("", {}, {}, soon()).status().code() == Code::kInvalidArgument);
  }
}

inline void check_lists(HttpStore& a, HttpStore& b) {
  using Keys = std::vector<std::string>;

  SUBCASE("a list names the keys below a prefix in the order of their bytes") {
    CHECK(a.list("", soon()).value_or(Keys{"none"}).empty());
    const Keys keys{"a", "p/1", "p/10", "p/2", std::string("p/\xff\n", 4), "q"};
    for (const std::string& key : keys) REQUIRE(a.set(key, as_bytes("v"), soon()).ok());
    REQUIRE(a.set("p/gone", {}, soon()).ok());
    REQUIRE(a.remove("p/gone", soon()).ok());
    CHECK(b.wait("p/waited for", shortly()).status().code() == Code::kDeadlineExceeded);
    CHECK(b.list("p/", soon()).value_or(Keys{}) == Keys(keys.begin() + 1, keys.end() - 1));
    CHECK(b.list("", soon()).value_or(Keys{}) == keys);
    CHECK(b.list("p/1", soon()).value_or(Keys{}) == Keys{"p/1", "p/10"});
    CHECK(b.list("r", soon()).value_or(Keys{"none"}).empty());
  }
  SUBCASE("a long list is whole") {
    constexpr int kKeys = 2500;
    for (int i = 0; i < kKeys; ++i) REQUIRE(a.set(cat("k", 10000 + i), {}, soon()).ok());
    const auto keys = b.list("k", soon());
    REQUIRE(keys.ok());
    REQUIRE(keys->size() == kKeys);
    for (int i = 0; i < kKeys; ++i) REQUIRE((*keys)[static_cast<size_t>(i)] == cat("k", 10000 + i));
  }
}

inline void check_watches(HttpStore& a, HttpStore& b) {
  const auto now = [&] { return a.watch("", {}, soon()).value_or(Changes{}).revision; };

  SUBCASE("a watch tells what was set and removed since a revision, below its prefix") {
    const uint64_t start = now();
    REQUIRE(b.set("p/1", as_bytes("x"), soon()).ok());
    REQUIRE(b.set("other", as_bytes("x"), soon()).ok());
    REQUIRE(b.compare_and_set("p/n", {}, as_bytes("1"), soon()).ok());
    REQUIRE(b.remove("p/1", soon()).ok());
    const auto seen = a.watch("p/", start, soon());
    REQUIRE(seen.ok());
    CHECK(seen->changes ==
          std::vector<Changes::Change>{{"p/1", false}, {"p/n", false}, {"p/1", true}});
    const auto rest = a.watch("p/", seen->revision, shortly());
    CHECK(rest.status().code() == Code::kDeadlineExceeded);
    CHECK(rest.status().message().find("p/") != std::string::npos);
  }
  SUBCASE("a watch waits for the next change and misses none") {
    const uint64_t start = now();
    auto watcher = std::async(std::launch::async, [&] {
      std::vector<std::string> keys;
      uint64_t revision = start;
      while (keys.size() < 20) {
        const auto seen = a.watch("w/", revision, soon());
        if (!seen.ok()) break;
        revision = seen->revision;
        for (const auto& change : seen->changes) keys.push_back(change.key);
      }
      return keys;
    });
    for (int i = 0; i < 20; ++i) {
      REQUIRE(b.set("unrelated", {}, soon()).ok());
      REQUIRE(b.set(cat("w/", i), {}, soon()).ok());
    }
    const auto keys = watcher.get();
    REQUIRE(keys.size() == 20);
    for (int i = 0; i < 20; ++i) CHECK(keys[static_cast<size_t>(i)] == cat("w/", i));
  }
  SUBCASE("a revision that is still to come is refused") {
    CHECK(a.watch("", now() + 1000, soon()).status().code() == Code::kFailedPrecondition);
  }
}

inline void check_exchanges(Store& a, Store& b) {
  const auto record = [](int index) { return cat("record of ", index, std::string(1, '\0')); };
  const auto texts = [](const Result<std::vector<Bytes>>& records) {
    std::vector<std::string> found;
    if (!records.ok()) return std::vector<std::string>{records.status().message()};
    for (const Bytes& bytes : *records) found.emplace_back(as_text(bytes));
    return found;
  };

  SUBCASE("each party gets the records that it wants, as soon as they are there") {
    auto late = std::async(std::launch::async, [&] {
      return texts(a.exchange("x", {2, 4, {3, 0, 2}}, as_bytes(record(2)), soon()));
    });
    CHECK(texts(b.exchange("x", {0, 4, {0}}, as_bytes(record(0)), soon())) ==
          std::vector{record(0)});
    auto all = std::async(std::launch::async, [&] {
      return texts(b.exchange("x", {1, 4, {}}, as_bytes(record(1)), soon()));
    });
    CHECK(texts(a.exchange("x", {3, 4, {0, 3}}, as_bytes(record(3)), soon())) ==
          std::vector{record(0), record(3)});
    CHECK(late.get() == std::vector{record(3), record(0), record(2)});
    CHECK(all.get() == std::vector{record(0), record(1), record(2), record(3)});
    // Repeats the request, as after a lost reply.
    CHECK(texts(a.exchange("x", {1, 4, {}}, as_bytes(record(1)), soon())).size() == 4);
    CHECK(a.exchange("x", {1, 4, {}}, as_bytes("else"), soon()).status().code() ==
          Code::kFailedPrecondition);
    CHECK(a.exchange("x", {1, 5, {}}, as_bytes(record(1)), soon()).status().code() ==
          Code::kFailedPrecondition);
  }
  SUBCASE("an exchange whose deadline passes says who is missing, and keeps the record") {
    const auto early = a.exchange("x", {1, 4, {}}, as_bytes(record(1)), shortly());
    CHECK(early.status().code() == Code::kDeadlineExceeded);
    CHECK(early.status().message().find("0, 2, 3") != std::string::npos);
    CHECK(texts(b.exchange("x", {0, 4, {1}}, as_bytes(record(0)), soon())) ==
          std::vector{record(1)});
  }
  SUBCASE("a forgotten exchange begins anew, and its waiters get an error") {
    auto waits = std::async(std::launch::async, [&] {
      return a.exchange("x", {1, 3, {}}, as_bytes(record(1)), soon()).status().code();
    });
    // The first exchange ends when the other record arrives; then the other client waits.
    CHECK(texts(b.exchange("x", {0, 3, {1}}, as_bytes(record(0)), soon())) ==
          std::vector{record(1)});
    CHECK(b.forget("x", soon()).ok());
    CHECK(waits.get() == Code::kAborted);
    CHECK(b.forget("x", soon()).ok());
    CHECK(texts(b.exchange("x", {0, 1, {}}, {}, soon())) == std::vector<std::string>{""});
  }
  SUBCASE("parties that make no sense are refused") {
    for (const Party& party : {Party{0, 0, {}}, Party{2, 2, {}}, Party{-1, 2, {}}, Party{0, 2, {2}},
                               Party{0, 2, {-1}}}) {
      CHECK(a.exchange("x", party, {}, soon()).status().code() == Code::kInvalidArgument);
    }
    CHECK(a.exchange("", {0, 1, {}}, {}, soon()).status().code() == Code::kInvalidArgument);
  }
}

}  // namespace hvd::rendezvous

#define HVD_STORE_CONFORMANCE_CASE(name, Fixture, check)         \
  TEST_CASE(name) {                                              \
    Fixture fixture;                                             \
    ::hvd::rendezvous::check(fixture.first(), fixture.second()); \
  }
#define HVD_STORE_CONFORMANCE(name, Fixture)                                           \
  HVD_STORE_CONFORMANCE_CASE(name " keeps values", Fixture, check_values)              \
  HVD_STORE_CONFORMANCE_CASE(name " lets clients wait for keys", Fixture, check_waits) \
  HVD_STORE_CONFORMANCE_CASE(name " compares and sets", Fixture, check_swaps)          \
  HVD_STORE_CONFORMANCE_CASE(name " exchanges records", Fixture, check_exchanges)      \
  static_assert(true)
#define HVD_SERVER_CONFORMANCE(name, Fixture)                                 \
  HVD_STORE_CONFORMANCE(name, Fixture);                                       \
  HVD_STORE_CONFORMANCE_CASE(name " lists keys", Fixture, check_lists)        \
  HVD_STORE_CONFORMANCE_CASE(name " reports changes", Fixture, check_watches) \
  static_assert(true)
