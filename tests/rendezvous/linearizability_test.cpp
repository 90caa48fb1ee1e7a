// Tests that stores are linearizable for concurrent clients: a store in memory, a server, and
// servers that replace each other while etcd stores the job. history.h checks the recorded
// histories.
#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "base/text.h"
#include "rendezvous/child.h"
#include "rendezvous/etcd/etcd_store.h"
#include "rendezvous/history.h"
#include "rendezvous/memory_store.h"
#include "rendezvous/running_server.h"

namespace hvd::rendezvous {
namespace {

using Kind = Operation::Kind;
using Histories = std::map<std::string, std::vector<Operation>>;

constexpr int kClients = 6;
constexpr int kOperations = HVD_TEST_SANITIZED ? 120 : 400;

Operation operation(int client, Kind kind, uint64_t called, uint64_t returned, Held seen = {},
                    std::string value = {}) {
  Operation one;
  one.client = client;
  one.kind = kind;
  one.called = called;
  one.returned = returned;
  one.seen = std::move(seen);
  one.value = std::move(value);
  return one;
}

// A client that makes random operations on a few keys and records their results.
class Client {
 public:
  Client(int number, Store& store, std::atomic<uint64_t>& clock)
      : number_(number), store_(store), clock_(clock), random_(static_cast<unsigned>(number)) {}

  // Makes one operation and records it.
  void step() {
    const std::string key = cat(is_swapped(random_) ? "swapped/" : "text/", any_key(random_));
    Operation one;
    one.client = number_;
    one.kind = any_kind(key);
    one.value = cat(number_, ":", ++written_);
    if (one.kind == Kind::kSwap && last_[key]) one.expected = last_[key];
    one.called = ++clock_;
    one.is_known = run(key, one);
    one.returned = ++clock_;
    if (one.is_known && one.kind != Kind::kSet) last_[key] = one.seen;
    histories_[key].push_back(std::move(one));
  }
  const Histories& histories() const { return histories_; }

 private:
  Kind any_kind(const std::string& key) {
    constexpr Kind kText[] = {Kind::kSet, Kind::kGet, Kind::kGet, Kind::kSwap, Kind::kRemove};
    constexpr Kind kSwapped[] = {Kind::kSwap, Kind::kSwap, Kind::kGet, Kind::kSwap, Kind::kSwap};
    const size_t one = std::uniform_int_distribution<size_t>(0, 4)(random_);
    return key.front() == 's' ? kSwapped[one] : kText[one];
  }

  // Returns whether the operation is known to have taken place; stores its result in `one`.
  bool run(const std::string& key, Operation& one) {
    const Deadline deadline = Deadline::after_seconds(200);
    switch (one.kind) {
      case Kind::kSet:
        return store_.set(key, as_bytes(one.value), deadline).ok();
      case Kind::kRemove:
        return store_.remove(key, deadline).ok();
      case Kind::kGet: {
        const auto value = store_.get(key, deadline);
        if (value.ok()) one.seen = std::string(as_text(*value));
        return value.ok() || value.status().code() == Code::kNotFound;
      }
      case Kind::kSwap: {
        const auto swap = store_.compare_and_set(
            key, one.expected ? std::optional(as_bytes(*one.expected)) : std::nullopt,
            as_bytes(one.value), deadline);
        if (!swap.ok()) return false;
        one.swapped = swap->swapped;
        if (swap->value) one.seen = std::string(as_text(*swap->value));
        return true;
      }
    }
    return false;
  }

  const int number_;
  Store& store_;
  std::atomic<uint64_t>& clock_;
  std::mt19937 random_;
  std::bernoulli_distribution is_swapped{0.5};
  std::uniform_int_distribution<int> any_key{0, 2};
  int written_ = 0;
  std::map<std::string, Held> last_;  // last value that this client saw, by key
  Histories histories_;
};

// `store_of` returns the store of each client; `disturb` runs at the same time as the clients.
template <typename StoreOf, typename Disturb>
void check(StoreOf store_of, Disturb disturb) {
  std::atomic<uint64_t> clock = 0;
  std::atomic<int> steps = 0;
  std::vector<Client> clients;
  for (int i = 0; i < kClients; ++i) clients.emplace_back(i, store_of(i), clock);
  std::vector<std::thread> threads;
  for (Client& client : clients) {
    threads.emplace_back([&] {
      for (int i = 0; i < kOperations; ++i) {
        client.step();
        ++steps;
        steps.notify_all();
      }
    });
  }
  disturb(steps);
  for (auto& thread : threads) thread.join();
  Histories all;
  for (const Client& client : clients) {
    for (const auto& [key, history] : client.histories()) {
      all[key].insert(all[key].end(), history.begin(), history.end());
    }
  }
  size_t known = 0;
  for (const auto& [name, history] : all) {
    const std::string& key = name;  // clang cannot capture a structured binding in a lambda
    for (const Operation& one : history) known += one.is_known;
    const auto fault = find_fault(history);
    CHECK_MESSAGE(!fault, key << " is " << fault.value_or(""));
  }
  CHECK(known == static_cast<size_t>(kClients) * kOperations);
}

void leave_alone(std::atomic<int>&) {}

}  // namespace

TEST_CASE("the checker knows histories that have an order from those that have none") {
  // Two concurrent sets may take place in either order; clients must agree on the order.
  std::vector<Operation> history{
      operation(0, Kind::kSet, 1, 10, {}, "a"), operation(1, Kind::kSet, 2, 9, {}, "b"),
      operation(2, Kind::kGet, 11, 12, "a"), operation(3, Kind::kGet, 11, 13, "a")};
  CHECK_FALSE(find_fault(history));
  history[3].seen = "b";
  const auto fault = find_fault(history);
  REQUIRE(fault);
  CHECK(fault->find("not linearizable: nothing explains client") == 0);
  CHECK(fault->find("get: 'b'") != std::string::npos);
  // A get that began before the end of a set may miss the new value; a later get may not.
  history = {operation(0, Kind::kSet, 1, 5, {}, "a"), operation(1, Kind::kGet, 4, 6)};
  CHECK_FALSE(find_fault(history));
  history[1].called = 6;
  history[1].returned = 7;
  CHECK(find_fault(history));
  // An operation without a result may take place late or never, and at most once.
  history = {operation(0, Kind::kSet, 1, 2, {}, "a"), operation(1, Kind::kGet, 9, 10, "a"),
             operation(1, Kind::kGet, 11, 12), operation(1, Kind::kGet, 13, 14)};
  CHECK(find_fault(history));
  history[0].is_known = true;
  history.push_back(operation(2, Kind::kRemove, 3, 4));
  history.back().is_known = false;
  CHECK_FALSE(find_fault(history));
  history[3].seen = "a";
  CHECK(find_fault(history));
  // One of two swaps that expect the same value takes place.
  history = {operation(0, Kind::kSwap, 1, 9, "a", "a"), operation(1, Kind::kSwap, 1, 9, "a", "b")};
  history[0].swapped = true;
  CHECK_FALSE(find_fault(history));
  history[1].swapped = true;
  history[1].seen = "b";
  CHECK(find_fault(history));
  // The result of a swap contains the value that it found.
  history = {operation(0, Kind::kSet, 1, 2, {}, "a"), operation(1, Kind::kSwap, 3, 4, "b", "b"),
             operation(2, Kind::kSwap, 5, 6, "b", "c")};
  history[1].expected = "a";
  history[1].swapped = true;
  history[2].expected = "a";
  CHECK_FALSE(find_fault(history));
  history[2].swapped = true;
  CHECK(find_fault(history));
  CHECK_FALSE(find_fault({}));
}

TEST_CASE("clients of the memory store see one order") {
  MemoryStore store;
  check([&](int) -> Store& { return store; }, leave_alone);
}

TEST_CASE("clients of a server see one order") {
  RunningServer server;
  std::vector<std::unique_ptr<HttpStore>> stores;
  check(
      [&](int) -> Store& {
        return *stores.emplace_back(std::make_unique<HttpStore>(server.endpoint(), test_secret()));
      },
      leave_alone);
}

TEST_CASE("clients of servers that replace each other see one order") {
  REQUIRE_ETCD();
  Etcd etcd;
  const std::string address = cat("tcp:127.0.0.1:", free_port());
  const Secret secret = test_secret();
  const auto open = [&](net::asio::any_io_executor executor) {
    return etcd::open_store(executor, *etcd::parse_url("etcd://" + etcd.address()), secret,
                            std::chrono::seconds(60), Deadline::after_seconds(200));
  };
  auto server = std::make_unique<RunningServer>(address, 0, open);
  std::vector<std::unique_ptr<HttpStore>> stores;
  check(
      [&](int) -> Store& {
        return *stores.emplace_back(std::make_unique<HttpStore>(
            server->endpoint(), test_secret(), HttpStoreOptions{.reconnect_seconds = 60}));
      },
      [&](std::atomic<int>& steps) {
        constexpr int kTotal = kClients * kOperations;
        for (int next = kTotal / 16; next < kTotal; next += kTotal / 8) {
          for (int done = steps; done < next; done = steps) steps.wait(done);
          // The server ends without its unconfirmed changes.
          server->run([](Server& one) { one.hand_over(); });
          server.reset();
          server = std::make_unique<RunningServer>(address, 0, open);
        }
      });
}

}  // namespace hvd::rendezvous
