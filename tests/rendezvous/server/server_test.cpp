#include "rendezvous/server/server.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "conformance/store_conformance.h"
#include "rendezvous/raw_client.h"

namespace hvd::rendezvous {
namespace {

using std::chrono::milliseconds;

// A proxy between one client and the server that loses a reply: it forwards the bytes of the first
// connection until the server answers the request after hello, and then closes both ends.
class LossyProxy {
 public:
  explicit LossyProxy(const net::Endpoint& server) : server_(server) {
    auto fd = net::listen_on(*net::numeric_address(*net::parse_endpoint("tcp:127.0.0.1:0")));
    REQUIRE(fd.ok());
    endpoint_ = net::to_endpoint(*net::local_address(fd->get()));
    listener_ = std::move(*fd);
    thread_ = std::thread([this] { serve(); });
  }
  ~LossyProxy() {
    stop_ = true;
    thread_.join();
  }
  const net::Endpoint& endpoint() const { return endpoint_; }
  int lost() const { return lost_; }

 private:
  static bool pump(int from, int to) {
    char buffer[4096];
    const ssize_t size = ::recv(from, buffer, sizeof buffer, 0);
    return size > 0 && ::send(to, buffer, static_cast<size_t>(size), MSG_NOSIGNAL) == size;
  }
  static bool readable(int fd) {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, 5) > 0;
  }
  void serve() {
    while (!stop_) {
      if (!readable(listener_.get())) continue;
      const UniqueFd client(::accept(listener_.get(), nullptr, nullptr));
      auto server = net::BlockingStream::connect(std::vector{*net::numeric_address(server_)},
                                                 Deadline::after_seconds(5));
      if (!server.ok()) return;
      for (int replies = 0; !stop_;) {
        if (readable(client.get()) && !pump(client.get(), server->fd())) break;
        if (!readable(server->fd())) continue;
        if (++replies == 2 && lost_ == 0) {
          ++lost_;
          break;
        }
        if (!pump(server->fd(), client.get())) break;
      }
    }
  }

  net::Endpoint server_;
  net::Endpoint endpoint_;
  UniqueFd listener_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> lost_ = 0;
  std::thread thread_;
};

}  // namespace

TEST_CASE("a client with another secret gets an error, and its request has no effect") {
  RunningServer server;
  HttpStore stranger(server.endpoint(), Secret::random());
  const Status status = stranger.set("k", as_bytes("1"), soon());
  CHECK(status.code() == Code::kPermissionDenied);
  CHECK(status.message().find(net::to_string(server.endpoint())) != std::string::npos);
  CHECK(status.message().find("HOROVOD_JOB_SECRET") != std::string::npos);
  // The client also reads the error if the server refuses the request before the client has sent
  // all of it.
  CHECK(stranger.set("k", Bytes(16 << 20), soon()).code() == Code::kPermissionDenied);
  HttpStore member(server.endpoint(), test_secret());
  CHECK(member.get("k", soon()).status().code() == Code::kNotFound);
}

TEST_CASE("an unsigned request gets 401 and the end of the connection") {
  RunningServer server;
  RawClient client(server.endpoint());
  client.send(net::request_head("GET", "/v1/keys/k", {}, 0));
  CHECK(client.receive() == 401);
  CHECK_FALSE(client.is_signed());
  CHECK(client.ends());
}

TEST_CASE("the owner of the server reads the store without a connection") {
  RunningServer server;
  HttpStore store(server.endpoint(), test_secret());
  const Deadline deadline = Deadline::after_seconds(200);
  CHECK_FALSE(server.run([](Server& owned) { return owned.value("k"); }));
  REQUIRE(store.set("k", as_bytes("v"), deadline).ok());
  const auto value = server.run([](Server& owned) { return owned.value("k"); });
  REQUIRE(value);
  CHECK(as_text(*value) == "v");
}

TEST_CASE("a replayed request is refused, on its connection and on another") {
  RunningServer server;
  RawClient client(server.endpoint());
  client.hello();
  const std::string swap = client.signed_head(1, "POST", "/v1/swap/k?client=c&sequence=1");
  client.send(swap);
  CHECK(client.receive() == 200);
  CHECK(client.is_signed());
  client.send(swap);
  CHECK(client.receive() == 403);
  CHECK(client.body().find("replay") != std::string::npos);
  RawClient other(server.endpoint());
  other.hello().send(swap);
  CHECK(other.receive() == 403);
}

TEST_CASE("a body that was tampered with is refused") {
  RunningServer server;
  RawClient client(server.endpoint());
  client.hello();
  client.send(client.signed_head(1, "PUT", "/v1/keys/k", "good") + "evil");
  CHECK(client.receive() == 403);
  client.send(client.signed_head(2, "GET", "/v1/keys/k"));
  CHECK(client.receive() == 404);
}

TEST_CASE("oversize heads and bodies are refused before they take memory") {
  RunningServer server;
  RawClient large_body(server.endpoint());
  large_body.hello();
  std::string head = large_body.signed_head(1, "PUT", "/v1/keys/k", "x");
  head.replace(head.find("Content-Length: 1"), 17, "Content-Length: 67108865");
  large_body.send(head);
  CHECK(large_body.receive() == 413);
  RawClient large_head(server.endpoint());
  large_head.send("GET /v1/hello HTTP/1.1\r\nA: " + std::string(20'000, 'a'));
  CHECK(large_head.receive() == 431);
  for (const char* target : {"/v1/hello", "/v1/agent", "/health", "/metrics", "/status"}) {
    CAPTURE(target);
    RawClient with_body(server.endpoint());
    with_body.send(net::request_head("GET", target, {}, 1'000'000));
    CHECK(with_body.receive() == 400);
  }
  RawClient noise(server.endpoint());
  noise.send("\x16\x03\x01 this is not HTTP\r\n\r\n");
  CHECK(noise.receive() == 400);
  HttpStore member(server.endpoint(), test_secret());
  const Bytes overlong(kMaxValueBytes + 1);
  CHECK(member.set("k", overlong, soon()).code() == Code::kInvalidArgument);
}

TEST_CASE("requests that arrive together, or while one waits, are answered in order") {
  RunningServer server;
  RawClient client(server.endpoint());
  client.hello();
  client.send(client.signed_head(1, "PUT", "/v1/keys/k", "v") + "v" +
              client.signed_head(2, "GET", "/v1/keys/k"));
  CHECK(client.receive() == 200);
  CHECK(client.receive() == 200);
  CHECK(client.body() == "v");
  client.send(client.signed_head(3, "GET", "/v1/keys/later?wait=10000"));
  server.await_waiters(1);
  client.send(client.signed_head(4, "GET", "/v1/keys/k"));
  HttpStore other(server.endpoint(), test_secret());
  CHECK(other.set("later", as_bytes("w"), soon()).ok());
  CHECK(client.receive() == 200);
  CHECK(client.body() == "w");
  CHECK(client.receive() == 200);
  CHECK(client.body() == "v");
}

TEST_CASE("a client that dies in the middle of a request, or waiting, leaves nothing") {
  RunningServer server;
  {
    RawClient in_head(server.endpoint());
    in_head.hello();
    const std::string head = in_head.signed_head(1, "PUT", "/v1/keys/k", "12345");
    in_head.send(head.substr(0, head.size() / 2));
    RawClient in_body(server.endpoint());
    in_body.hello();
    in_body.send(in_body.signed_head(1, "PUT", "/v1/keys/k", "12345") + "123");
    RawClient at_wait(server.endpoint());
    at_wait.hello();
    at_wait.send(at_wait.signed_head(1, "GET", "/v1/keys/k?wait=100000"));
    RawClient at_exchange(server.endpoint());
    at_exchange.hello();
    at_exchange.send(
        at_exchange.signed_head(1, "POST", "/v1/exchange/x?count=2&index=0&wait=100000"));
    server.await_waiters(2);
    server.await_sessions(4);
  }
  server.await_waiters(0);
  server.await_sessions(0);
  HttpStore store(server.endpoint(), test_secret());
  CHECK(store.get("k", soon()).status().code() == Code::kNotFound);
}

TEST_CASE("an exchange of more parties than a job can have is refused") {
  RunningServer server;
  RawClient client(server.endpoint());
  client.hello().send(client.signed_head(1, "POST", "/v1/exchange/x?count=2147483647&index=0"));
  CHECK(client.receive() == 400);
  CHECK(client.body() == "'count=2147483647' is not a whole number from 1 to 1048576");
  HttpStore store(server.endpoint(), test_secret());
  const auto missing = store.exchange("x", {3, kMaxParties, {}}, {}, shortly());
  CHECK(
      missing.status().message() ==
      "exchange 'x' waits for 1048575 of 1048576 records: those of parties 0, 1, 2, 4, 5, 6, 7, 8, "
      "9, 10, 11, 12, 13, 14, 15, 16 and 1048559 more");
}

TEST_CASE("a client that does not prove itself, or sends too slowly, has limited time") {
  ServerLimits limits;
  // An authenticated client needs less time, on a busy machine too.
  limits.handshake = milliseconds(3000);
  limits.transfer = milliseconds(3000);
  RunningServer server("tcp:127.0.0.1:0", 0, limits);
  RawClient silent(server.endpoint());
  RawClient only_hello(server.endpoint());
  only_hello.hello();
  RawClient slow(server.endpoint());
  slow.hello().send(slow.signed_head(1, "GET", "/v1/keys/k"));
  CHECK(slow.receive() == 404);
  RawClient idle(server.endpoint());
  idle.hello().send(idle.signed_head(1, "GET", "/v1/keys/k"));
  CHECK(idle.receive() == 404);
  slow.send("GET /v1/ke");
  CHECK(silent.ends());
  CHECK(only_hello.ends());
  CHECK(slow.ends());
  // The last exchange of `idle` is older than the first one of `slow`: a common limit would have
  // ended `idle`.
  idle.send(idle.signed_head(2, "GET", "/v1/keys/k"));
  CHECK(idle.receive() == 404);
}

TEST_CASE("one client too many that has proven nothing ends the oldest of them") {
  ServerLimits limits;
  limits.unproven = 2;
  RunningServer server("tcp:127.0.0.1:0", 0, limits);
  RawClient proven(server.endpoint());
  proven.hello().send(proven.signed_head(1, "GET", "/v1/keys/k"));
  CHECK(proven.receive() == 404);
  RawClient oldest(server.endpoint());
  server.await_sessions(2);
  RawClient middle(server.endpoint());
  server.await_sessions(3);
  RawClient newest(server.endpoint());
  CHECK(oldest.ends());
  for (RawClient* client : {&middle, &newest}) {
    client->hello().send(client->signed_head(1, "GET", "/v1/keys/k"));
    CHECK(client->receive() == 404);
  }
  proven.send(proven.signed_head(2, "GET", "/v1/keys/k"));
  CHECK(proven.receive() == 404);
}

TEST_CASE("a reader that takes nothing of a large reply is let go") {
  ServerLimits limits;
  limits.transfer = milliseconds(500);
  limits.rate = 1 << 20;
  RunningServer server(cat("unix:@horovod-reader-test-", ::getpid()), 0, limits);
  HttpStore store(server.endpoint(), test_secret());
  REQUIRE(store.set("large", Bytes(2 << 20), soon()).ok());
  server.await_sessions(1);
  RawClient reader(server.endpoint());
  reader.hello().send(reader.signed_head(1, "GET", "/v1/keys/large"));
  server.await_sessions(2);
  server.await_sessions(1);
  CHECK(store.set("k", {}, soon()).ok());
}

TEST_CASE("a compare-and-set whose reply was lost is repeated and done once") {
  RunningServer server;
  LossyProxy proxy(server.endpoint());
  HttpStore store(proxy.endpoint(), test_secret());
  const auto swap = store.compare_and_set("k", {}, as_bytes("1"), soon());
  REQUIRE(swap.ok());
  CHECK(swap->swapped);
  CHECK(proxy.lost() == 1);
  CHECK_FALSE(store.compare_and_set("k", {}, as_bytes("2"), soon())->swapped);
}

TEST_CASE("workers that know only address and secret get their places") {
  RunningServer server("tcp:127.0.0.1:0", 3);
  HttpStore first(server.endpoint(), test_secret());
  CHECK(first.join("a", shortly()).status().message() ==
        "1 of 3 workers are there (a: 1), 2 are missing");
  std::vector<std::future<Result<Place>>> places;
  std::vector<std::unique_ptr<HttpStore>> stores;
  for (const std::string host : {"a", "b", "a"}) {
    stores.push_back(std::make_unique<HttpStore>(server.endpoint(), test_secret()));
    places.push_back(std::async(
        std::launch::async, [&store = *stores.back(), host] { return store.join(host, soon()); }));
  }
  std::vector<Place> got;
  for (auto& place : places) {
    const auto result = place.get();
    REQUIRE_MESSAGE(result.ok(), result.status().message());
    got.push_back(*result);
  }
  CHECK(got[0].rank + got[1].rank + got[2].rank == 3);
  CHECK(got[0].local_size == 2);
  CHECK(got[1] == Place{got[1].rank, 3, 0, 1, got[1].rank == 0 ? 0 : 1, 2, 0});
  CHECK(got[2].local_size == 2);
  CHECK(std::abs(got[0].rank - got[2].rank) == 1);
  CHECK(stores[1]->join("b", soon()).value_or(Place{}) == got[1]);
  HttpStore late(server.endpoint(), test_secret());
  const auto surplus = late.join("b", soon());
  CHECK(surplus.status().code() == Code::kFailedPrecondition);
  CHECK(surplus.status().message().find("has its 3 workers") != std::string::npos);
}

TEST_CASE("a server that closes tells those who wait, and they do not try again") {
  auto server = std::make_unique<RunningServer>();
  HttpStore store(server->endpoint(), test_secret());
  auto wait = std::async(std::launch::async, [&] { return store.wait("k", soon()).status(); });
  auto exchange = std::async(std::launch::async, [&] {
    return store.exchange("x", {0, 2, {}}, {}, soon()).status();
  });
  server->await_waiters(2);
  server.reset();
  CHECK(wait.get().code() == Code::kAborted);
  CHECK(exchange.get().message().find("closing") != std::string::npos);
}

TEST_CASE("a client outlives a restart of the server") {
  const std::string address = cat("unix:@horovod-restart-test-", ::getpid());
  auto server = std::make_unique<RunningServer>(address);
  HttpStore store(server->endpoint(), test_secret());
  REQUIRE(store.set("k", as_bytes("1"), soon()).ok());
  server.reset();
  auto set = std::async(std::launch::async, [&] { return store.set("k", as_bytes("2"), soon()); });
  std::this_thread::sleep_for(milliseconds(30));
  server = std::make_unique<RunningServer>(address);
  CHECK(set.get().ok());
  CHECK(text_of(store.get("k", soon())) == "2");
}

TEST_CASE("a server that cannot be reached is tried for its time, then named with advice") {
  const auto endpoint = *net::parse_endpoint("unix:@horovod-nobody-listens-here");
  HttpStore store(endpoint, test_secret(), {.reconnect_seconds = 0.1});
  const auto value = store.get("k", Deadline::never());
  CHECK(value.status().code() == Code::kUnavailable);
  CHECK(value.status().message() ==
        "the rendezvous server at unix:@horovod-nobody-listens-here: cannot connect: Connection "
        "refused; check that the launcher or horovod-rendezvous still runs there");
}

TEST_CASE("an adopted socket is served like an accepted one") {
  RunningServer server;
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
  server.run([&](Server& s) {
    net::StreamSocket socket(server.loop());
    socket.assign(net::asio::generic::stream_protocol(AF_UNIX, 0), fds[0]);
    s.adopt(std::move(socket));
  });
  const UniqueFd far(fds[1]);
  const std::string hello =
      net::request_head("GET", "/v1/hello", {{"Hvd-Nonce", std::string(32, '0')}}, 0);
  REQUIRE(::send(far.get(), hello.data(), hello.size(), 0) > 0);
  pollfd entry{far.get(), POLLIN, 0};
  REQUIRE(::poll(&entry, 1, 10'000) == 1);
  char answer[4096];
  const ssize_t size = ::recv(far.get(), answer, sizeof answer, 0);
  CHECK(std::string(answer, static_cast<size_t>(size)).starts_with("HTTP/1.1 200 OK"));
}

TEST_CASE("parent and forked child use one store without mixing their answers") {
  RunningServer server;
  HttpStore store(server.endpoint(), test_secret());
  REQUIRE(count_up(store, "n", 1));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::_exit(count_up(store, "n", 20) ? 0 : 1);
  }
  CHECK(count_up(store, "n", 20));
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(text_of(store.get("n", soon())) == "41");
}

TEST_CASE("a server on all interfaces is reached by a name") {
  RunningServer server("tcp::0");
  net::Endpoint endpoint = server.endpoint();
  endpoint.host = "localhost";
  HttpStore store(endpoint, test_secret());
  CHECK(store.set("k", as_bytes("1"), soon()).ok());
}

TEST_CASE("a port that is taken is named") {
  RunningServer server;
  const auto again = server.run([&](Server& s) { return s.listen(server.endpoint()); });
  REQUIRE_FALSE(again.ok());
  CHECK(again.status().message() ==
        cat("cannot listen on ", net::to_string(server.endpoint()), ": Address already in use"));
}

}  // namespace hvd::rendezvous
