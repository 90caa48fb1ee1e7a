// What every store does. A fixture type gives two clients of one empty store: `Store& first()`,
// `Store& second()`. Instantiate with HVD_STORE_CONFORMANCE("name", Fixture).
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "rendezvous/store.h"

namespace hvd::rendezvous {

inline Deadline soon() { return Deadline::after_seconds(10); }
inline Deadline shortly() { return Deadline::after_seconds(0.05); }
inline std::string text_of(const Result<Bytes>& value) {
  return value.ok() ? std::string(as_text(*value)) : "failed: " + value.status().message();
}

template <typename Fixture>
void check_values() {
  Fixture fixture;
  Store& a = fixture.first();
  Store& b = fixture.second();

  SUBCASE("what one client sets, the other gets, the last value wins") {
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
    CHECK(a.add(overlong, 1, soon()).status().code() == Code::kInvalidArgument);
    CHECK(a.fence(overlong, 1, soon()).code() == Code::kInvalidArgument);
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

template <typename Fixture>
void check_waits() {
  Fixture fixture;
  Store& a = fixture.first();
  Store& b = fixture.second();

  SUBCASE("a wait for a key that is there returns at once, even when its time is over") {
    REQUIRE(a.set("k", as_bytes("1"), soon()).ok());
    CHECK(text_of(b.wait("k", soon())) == "1");
    CHECK(text_of(b.wait("k", Deadline::after_seconds(0))) == "1");
  }
  SUBCASE("waits are woken by another client's set") {
    std::vector<std::future<std::string>> waits;
    for (int i = 0; i < 4; ++i) {
      waits.push_back(std::async(std::launch::async, [&, i] {
        return text_of((i % 2 ? a : b).wait("k", soon()));
      }));
    }
    REQUIRE(a.set("unrelated", as_bytes("0"), soon()).ok());
    REQUIRE(a.set("k", as_bytes("v"), soon()).ok());
    for (auto& wait : waits) CHECK(wait.get() == "v");
  }
  SUBCASE("a wait is woken by an add") {
    auto wait = std::async(std::launch::async, [&] { return text_of(b.wait("n", soon())); });
    REQUIRE(a.add("n", 3, soon()).ok());
    CHECK(wait.get() == "3");
  }
  SUBCASE("a wait whose deadline passes names the key, and the store goes on") {
    const auto value = a.wait("never-set", shortly());
    CHECK(value.status().code() == Code::kDeadlineExceeded);
    CHECK(value.status().message().find("never-set") != std::string::npos);
    REQUIRE(a.set("never-set", as_bytes("after all"), soon()).ok());
    CHECK(text_of(a.wait("never-set", soon())) == "after all");
  }
}

template <typename Fixture>
void check_counters() {
  Fixture fixture;
  Store& a = fixture.first();
  Store& b = fixture.second();

  SUBCASE("a counter begins at 0, is shared, and is a value in decimal digits") {
    CHECK(a.add("n", 5, soon()).value_or(0) == 5);
    CHECK(b.add("n", -7, soon()).value_or(0) == -2);
    CHECK(text_of(a.get("n", soon())) == "-2");
    REQUIRE(a.set("n", as_bytes("40"), soon()).ok());
    CHECK(b.add("n", 2, soon()).value_or(0) == 42);
  }
  SUBCASE("adds of many threads are all counted") {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        for (int j = 0; j < 25; ++j) CHECK((i % 2 ? a : b).add("n", 1, soon()).ok());
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(a.add("n", 0, soon()).value_or(0) == 100);
  }
  SUBCASE("adding to what is no number, or beyond 64 bits, is refused") {
    REQUIRE(a.set("word", as_bytes("x"), soon()).ok());
    CHECK(a.add("word", 1, soon()).status().code() == Code::kFailedPrecondition);
    REQUIRE(a.add("n", INT64_MAX, soon()).ok());
    CHECK(a.add("n", 1, soon()).status().code() == Code::kFailedPrecondition);
    CHECK(a.add("n", 0, soon()).value_or(0) == INT64_MAX);
  }
}

template <typename Fixture>
void check_fences() {
  Fixture fixture;
  Store& a = fixture.first();
  Store& b = fixture.second();

  SUBCASE("a fence opens when all parties are there, and again in the next round") {
    for (int round = 0; round < 3; ++round) {
      auto other = std::async(std::launch::async, [&] { return b.fence("f", 3, soon()); });
      auto third = std::async(std::launch::async, [&] { return b.fence("f", 3, soon()); });
      CHECK(a.fence("f", 3, soon()).ok());
      CHECK(other.get().ok());
      CHECK(third.get().ok());
    }
    CHECK(a.fence("alone", 1, soon()).ok());
  }
  SUBCASE("a fence whose deadline passes says how many are missing and forgets who gave up") {
    const Status status = a.fence("f", 3, shortly());
    CHECK(status.code() == Code::kDeadlineExceeded);
    CHECK(status.message().find("2 of 3") != std::string::npos);
    CHECK(b.fence("f", 2, shortly()).message().find("1 of 2") != std::string::npos);
  }
  SUBCASE("parties that expect different counts are told so") {
    auto first = std::async(std::launch::async, [&] { return a.fence("f", 2, soon()); });
    // Who comes first decides the count, and which one that is depends on the threads.
    Status odd = deadline_exceeded("");
    while (odd.code() == Code::kDeadlineExceeded &&
           first.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      odd = b.fence("f", 3, Deadline::after_seconds(0.02));
    }
    if (odd.code() == Code::kFailedPrecondition) {
      CHECK(b.fence("f", 2, soon()).ok());
      CHECK(first.get().ok());
    } else {
      CHECK(first.get().code() == Code::kFailedPrecondition);
    }
  }
  SUBCASE("a fence of nobody is refused") {
    CHECK(a.fence("f", 0, soon()).code() == Code::kInvalidArgument);
  }
}

}  // namespace hvd::rendezvous

#define HVD_STORE_CONFORMANCE(name, Fixture)                                              \
  TEST_CASE(name " keeps values") { ::hvd::rendezvous::check_values<Fixture>(); }         \
  TEST_CASE(name " lets clients wait for keys") { ::hvd::rendezvous::check_waits<Fixture>(); } \
  TEST_CASE(name " counts") { ::hvd::rendezvous::check_counters<Fixture>(); }             \
  TEST_CASE(name " has fences") { ::hvd::rendezvous::check_fences<Fixture>(); }           \
  static_assert(true)
