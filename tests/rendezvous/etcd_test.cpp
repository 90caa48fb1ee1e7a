// Tests of the store over a server that stores its job in a real etcd: it passes the tests of every
// store, and the job survives the loss of servers.
#include <doctest/doctest.h>
#include <signal.h>

#include <atomic>
#include <fstream>
#include <future>
#include <thread>

#include "conformance/store_conformance.h"
#include "rendezvous/child.h"
#include "rendezvous/client/http_connection.h"
#include "rendezvous/etcd/etcd_store.h"
#include "rendezvous/etcd/etcd_text.h"
#include "rendezvous/running_server.h"

namespace hvd::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// One etcd for all test cases; each uses its own prefix.
Etcd& shared_etcd() {
  static Etcd etcd;
  return etcd;
}

std::string new_prefix() {
  static std::atomic<int> count = 0;
  return cat("/test/", ++count);
}

auto opener(const std::string& url, seconds lifetime = seconds(60)) {
  return [url, lifetime, secret = test_secret()](net::asio::any_io_executor executor) {
    return etcd::open_store(executor, *etcd::parse_url(url), secret, lifetime, soon());
  };
}

// Returns at most 1,000 keys below a prefix in etcd.
std::vector<std::string> keys_in_etcd(const std::string& prefix) {
  net::asio::io_context loop;
  std::vector<std::string> keys;
  net::asio::co_spawn(
      loop,
      [&]() -> net::Task<void> {
        const auto client = std::make_shared<etcd::EtcdClient>(
            loop.get_executor(), etcd::parse_url("etcd://" + shared_etcd().address())->endpoints);
        const auto answer = co_await client->call(
            "/v3/kv/range", etcd::range_request(prefix, etcd::range_end_of(prefix), 1000), soon());
        REQUIRE(answer.ok());
        const auto range = etcd::parse_range(*answer);
        REQUIRE(range.ok());
        for (const auto& one : range->found) keys.push_back(one.key);
      },
      net::asio::detached);
  loop.run();
  return keys;
}

void await_no_keys(const std::string& prefix) {
  const Deadline deadline = Deadline::after_seconds(200);
  while (!keys_in_etcd(prefix).empty()) {
    REQUIRE_FALSE(deadline.passed());
    std::this_thread::sleep_for(milliseconds(20));
  }
}

// A job with a sequence of servers, all at the same port.
struct EtcdJob {
  std::string prefix = new_prefix();
  std::string url = cat("etcd://", shared_etcd().address(), prefix);
  std::string address = cat("tcp:127.0.0.1:", free_port());
  int size = 0;
  std::unique_ptr<RunningServer> server = make();

  explicit EtcdJob(int workers = 0) : size(workers) {}
  std::unique_ptr<RunningServer> make() const {
    return std::make_unique<RunningServer>(address, size, opener(url));
  }
  // Ends the server without its unconfirmed changes, like a server that is killed.
  void lose() {
    server->run([](Server& one) { one.hand_over(); });
    server.reset();
  }
  void replace() {
    lose();
    server = make();
  }
};

struct OnEtcd {
  EtcdJob job;
  HttpStore one{job.server->endpoint(), test_secret()};
  HttpStore two{job.server->endpoint(), test_secret()};
  HttpStore& first() { return one; }
  HttpStore& second() { return two; }
};

// Sends a request on a new connection: a second call is a repetition, as after a lost reply.
std::string ask(const net::Endpoint& endpoint, const std::string& target,
                const std::string& body = {}) {
  auto connection = HttpConnection::open(endpoint, test_secret(), soon());
  REQUIRE(connection.ok());
  const auto answer = (*connection)->exchange("POST", target, as_bytes(body), soon());
  REQUIRE_MESSAGE(answer.ok(), answer.status().message());
  return cat(answer->status, " ", as_text(answer->body));
}

}  // namespace

TEST_CASE("the store over etcd does what every store does") {
  REQUIRE_ETCD();
  OnEtcd stores;
  SUBCASE("values") { check_values(stores.first(), stores.second()); }
  SUBCASE("waits") { check_waits(stores.first(), stores.second()); }
  SUBCASE("swaps") { check_swaps(stores.first(), stores.second()); }
  SUBCASE("lists") { check_lists(stores.first(), stores.second()); }
  SUBCASE("watches") { check_watches(stores.first(), stores.second()); }
  SUBCASE("exchanges") { check_exchanges(stores.first(), stores.second()); }
}

TEST_CASE("the next server has what the one before held") {
  REQUIRE_ETCD();
  EtcdJob job(2);
  HttpStore store(*net::parse_endpoint(job.address), test_secret());
  HttpStore other(*net::parse_endpoint(job.address), test_secret());
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  Bytes large(5'000'001);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<std::byte>(i * 7);
  REQUIRE(store.set(all, as_bytes(all), soon()).ok());
  REQUIRE(store.set("large", Bytes(3'000'000), soon()).ok());
  REQUIRE(store.set("large", large, soon()).ok());
  REQUIRE(store.set("gone", large, soon()).ok());
  REQUIRE(store.remove("gone", soon()).ok());
  REQUIRE(store.set("n", as_bytes("41"), soon()).ok());
  REQUIRE(store.exchange("x", {0, 2, {0}}, as_bytes("zero"), soon()).ok());
  REQUIRE(store.exchange("y", {0, 1, {}}, as_bytes("y"), soon()).ok());
  REQUIRE(store.forget("y", soon()).ok());
  auto joined = std::async(std::launch::async, [&] { return other.join("b", soon()); });
  const auto place = store.join("a", soon());
  REQUIRE(place.ok());
  const auto other_place = joined.get();
  const uint64_t revision = store.watch("", {}, soon()).value_or(Changes{}).revision;

  job.replace();
  CHECK(text_of(store.get(all, soon())) == all);
  const auto value = store.get("large", soon());
  REQUIRE(value.ok());
  CHECK(*value == large);
  CHECK(store.get("gone", soon()).status().code() == Code::kNotFound);
  CHECK(store.compare_and_set("n", as_bytes("41"), as_bytes("42"), soon())->swapped);
  CHECK(other.exchange("x", {1, 2, {}}, as_bytes("one"), soon()).value_or(std::vector<Bytes>{}) ==
        std::vector{to_bytes("zero"), to_bytes("one")});
  CHECK(store.exchange("y", {0, 1, {}}, as_bytes("anew"), soon()).ok());
  CHECK(*store.join("a", soon()) == *place);
  CHECK(*other.join("b", soon()) == *other_place);
  HttpStore surplus(*net::parse_endpoint(job.address), test_secret());
  CHECK(surplus.join("c", soon()).status().code() == Code::kFailedPrecondition);
  const auto changes = store.watch("", revision, soon());
  REQUIRE(changes.ok());
  CHECK(changes->changes == std::vector<Changes::Change>{{"n", false}});
  // No pieces of overwritten and removed values remain.
  size_t pieces = 0;
  for (const std::string& key : keys_in_etcd(job.prefix)) pieces += key.find("/l") != key.npos;
  CHECK(pieces == 5);
}

TEST_CASE("a call that is repeated at the next server counts once") {
  REQUIRE_ETCD();
  EtcdJob job;
  const auto endpoint = job.server->endpoint();
  const std::string swap = "/v1/swap/s?client=b&sequence=7";
  CHECK(ask(endpoint, swap, "new") == "200 1new");
  job.replace();
  CHECK(ask(endpoint, swap, "new") == "200 1new");
  CHECK(ask(endpoint, "/v1/swap/s?client=b&sequence=6", "new").substr(0, 3) == "409");
  CHECK(ask(endpoint, "/v1/swap/s?client=b&sequence=8&expected=3", "newer") == "200 1er");
}

TEST_CASE("a server whose job another one has taken over ends, and its clients go there") {
  REQUIRE_ETCD();
  EtcdJob job;
  HttpStore store(job.server->endpoint(), test_secret(), {.reconnect_seconds = 0.2});
  REQUIRE(store.set("k", as_bytes("1"), soon()).ok());
  auto wait = std::async(std::launch::async, [&] { return store.wait("w", soon()).status(); });
  job.server->await_waiters(1);
  RunningServer later("tcp:127.0.0.1:0", 0, opener(job.url));
  HttpStore there(later.endpoint(), test_secret());
  REQUIRE(there.set("k", as_bytes("2"), soon()).ok());
  CHECK(store.get("k", soon()).status().code() == Code::kUnavailable);
  CHECK(wait.get().code() == Code::kUnavailable);
  CHECK(text_of(there.get("k", soon())) == "2");
}

TEST_CASE("nothing is left in etcd after the end of a job, or when no server resumes it") {
  REQUIRE_ETCD();
  EtcdJob job;
  HttpStore store(job.server->endpoint(), test_secret());
  REQUIRE(store.set("large", Bytes(2'000'000), soon()).ok());
  CHECK(keys_in_etcd(job.prefix).size() > 2);
  SUBCASE("the end of a job") {
    job.server.reset();
    await_no_keys(job.prefix);
  }
  SUBCASE("a server is lost for good") {
    const std::string prefix = new_prefix();
    {
      RunningServer server("tcp:127.0.0.1:0", 0,
                           opener(cat("etcd://", shared_etcd().address(), prefix), seconds(1)));
      HttpStore brief(server.endpoint(), test_secret());
      REQUIRE(brief.set("k", {}, soon()).ok());
      server.run([](Server& one) { one.hand_over(); });
      CHECK(keys_in_etcd(prefix).size() > 1);
    }
    await_no_keys(prefix);
  }
}

TEST_CASE("an error names the etcd that is unreachable or keeps another job, and the remedy") {
  REQUIRE_ETCD();
  const auto open = [&](const std::string& url, const Secret& secret, double seconds_left) {
    net::asio::io_context loop;
    Status status;
    net::asio::co_spawn(
        loop,
        [&]() -> net::Task<void> {
          auto opened =
              co_await etcd::open_store(loop.get_executor(), *etcd::parse_url(url), secret,
                                        seconds(60), Deadline::after_seconds(seconds_left));
          status = opened.status();
          if (opened.ok()) opened->store->end();
        },
        net::asio::detached);
    loop.run();
    return status;
  };
  const uint16_t nobody = free_port();
  const std::string dead = cat("127.0.0.1:", nobody);
  CHECK(open("etcd://" + dead, test_secret(), 3).message() ==
        cat("etcd at ", dead,
            " cannot be reached: Connection refused; check that etcd runs there "
            "and that --backend names its client port, with etcds:// if it has TLS"));
  CHECK(open(cat("etcd://", dead, ",", shared_etcd().address(), new_prefix()), test_secret(), 5)
            .ok());
  const EtcdJob job;
  const Status other = open(job.url, *Secret::from_hex("ffeeddccbbaa99887766554433221100"), 5);
  CHECK(other.code() == Code::kFailedPrecondition);
  CHECK(other.message().find("with another token") != std::string::npos);
  CHECK(etcd::parse_url("http://a").status().message() ==
        "'http://a' is not a backend: it does not begin with etcd:// or etcds://; write "
        "etcd://HOST:2379, or "
        "etcd://HOST:2379,HOST:2379/PREFIX");
  CHECK(etcd::parse_url("etcd://a,[::1]:7/p/q/")->prefix == "/p/q");
  CHECK(etcd::parse_url("etcd://a,[::1]:7")->endpoints[0].port == 2379);
  CHECK(etcd::parse_url("etcd://a,[::1]:7")->endpoints[1].port == 7);
  CHECK_FALSE(etcd::parse_url("etcd:///p").ok());
}

}  // namespace hvd::rendezvous
