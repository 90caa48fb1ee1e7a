#include "rendezvous/store/state.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "rendezvous/store/exchange.h"

namespace hvd::rendezvous {
namespace {

ValuePtr value(std::string_view text) { return std::make_shared<Value>(Value{to_bytes(text), {}}); }

std::string text(const ValuePtr& value) {
  return value ? std::string(as_text(value->bytes)) : "none";
}

}  // namespace

TEST_CASE("a repeated call is answered as before and done once") {
  StoreState state;
  const auto swap = [&](const CallId& call, std::optional<std::string_view> expected) {
    const auto result = state.compare_and_set(
        "k", expected ? std::optional(as_bytes(*expected)) : std::nullopt, value("new"), call);
    REQUIRE(result.ok());
    return cat(result->swapped ? "set " : "kept ", text(result->value));
  };
  CHECK(swap({"c", 1}, "old") == "kept none");
  CHECK(state.set("k", value("old")).ok());
  CHECK(swap({"c", 1}, "old") == "kept none");
  CHECK(swap({"c", 2}, "old") == "set new");
  CHECK(state.set("k", value("old")).ok());
  CHECK(swap({"c", 2}, "old") == "set new");
  CHECK(text(state.get("k")) == "old");
  CHECK(swap({"d", 1}, {}) == "kept old");
  CHECK(state.compare_and_set("k", as_bytes("old"), value("new"), {"c", 1}).status().code() ==
        Code::kFailedPrecondition);
  CHECK(text(state.get("k")) == "old");
}

TEST_CASE("a repeated set does not undo what another client set since") {
  StoreState state;
  CHECK(state.set("k", value("1"), {"c", 1}).ok());
  CHECK(state.set("k", value("2"), {"d", 1}).ok());
  CHECK(state.set("k", value("1"), {"c", 1}).ok());
  CHECK(text(state.get("k")) == "2");
  CHECK(state.remove("k", {"c", 2}).ok());
  CHECK(state.set("k", value("3")).ok());
  CHECK(state.remove("k", {"c", 2}).ok());
  CHECK(text(state.get("k")) == "3");
}

TEST_CASE("a waiter that withdraws is not woken and leaves no trace") {
  StoreState state;
  int woken = 0;
  const auto ticket = state.wait("k", [&](const ValuePtr&) { ++woken; });
  CHECK_FALSE(state.is_blank());
  state.withdraw(ticket);
  CHECK(state.is_blank());
  CHECK(state.waiter_count() == 0);
  CHECK(state.set("k", value("1")).ok());
  CHECK(woken == 0);
  state.withdraw(ticket);
  CHECK(text(state.get("k")) == "1");
}

TEST_CASE("removing a key does not disturb those who wait for its next value") {
  StoreState state;
  std::string seen;
  state.wait("k", [&](const ValuePtr& value) { seen = text(value); });
  CHECK(state.remove("k").ok());
  CHECK(state.waiter_count() == 1);
  CHECK(state.set("k", value("1")).ok());
  CHECK(seen == "1");
  CHECK(state.waiter_count() == 0);
}

TEST_CASE("the last 4,096 changes are remembered") {
  ChangeLog log;
  for (int i = 0; i < 4096; ++i) log.add("a", false);
  REQUIRE(log.after(0, "").ok());
  CHECK(log.after(0, "")->changes.size() == 4096);
  log.add("b", true);
  const auto late = log.after(0, "");
  REQUIRE_FALSE(late.ok());
  CHECK(late.error().message() ==
        "the changes after revision 0 are forgotten; list the keys and watch from 4097");
  CHECK(log.after(1, "b")->changes.size() == 1);
}

TEST_CASE("all exchanges with a prefix are forgotten at once") {
  Exchanges exchanges;
  int forgotten = 0;
  for (const char* name : {"g1/0/rank", "g1/0/leader", "g10/0/rank"}) {
    std::optional<Exchanges::Ticket> ticket;
    const auto on_records = [&](const ValuePtr& records) { forgotten += records == nullptr; };
    REQUIRE(exchanges.join(name, 2, 0, to_bytes("one"), {}, on_records, &ticket).ok());
    CHECK(ticket.has_value());
  }
  exchanges.remove_all("g1/");
  CHECK(forgotten == 2);
  CHECK(exchanges.waiter_count() == 1);
}

}  // namespace hvd::rendezvous
