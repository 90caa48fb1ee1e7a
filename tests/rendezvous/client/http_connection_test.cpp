#include "rendezvous/client/http_connection.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <future>
#include <thread>

#include "base/text.h"
#include "rendezvous/client/http_store.h"
#include "rendezvous/running_server.h"

namespace hvd::rendezvous {
namespace {

// A program without the secret. It answers hello, and the next request with `response`; without
// `response`, it is silent until its client disconnects.
class Impostor {
 public:
  explicit Impostor(std::string response) {
    auto fd = net::listen_on(*net::numeric_address(*net::parse_endpoint("tcp:127.0.0.1:0")));
    REQUIRE(fd.ok());
    listener_ = std::move(*fd);
    thread_ = std::thread([this, response = std::move(response)] {
      pollfd entry{listener_.get(), POLLIN, 0};
      if (::poll(&entry, 1, 10'000) != 1) return;
      const UniqueFd client(::accept(listener_.get(), nullptr, nullptr));
      char buffer[4096];
      const std::string nonce(32, '1');
      const std::string hello = net::response_head(200, {{"Hvd-Nonce", nonce}}, 0);
      for (const std::string& answer : {hello, response}) {
        if (::recv(client.get(), buffer, sizeof buffer, 0) <= 0) return;
        if (answer.empty()) break;
        if (::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL) <= 0) return;
      }
      while (::recv(client.get(), buffer, sizeof buffer, 0) > 0) {
      }
    });
  }
  ~Impostor() { thread_.join(); }
  net::Endpoint endpoint() const { return net::to_endpoint(*net::local_address(listener_.get())); }

 private:
  UniqueFd listener_;
  std::thread thread_;
};

}  // namespace

TEST_CASE("a server that does not know the secret is not believed") {
  Impostor impostor(net::response_head(200, {{"Hvd-Signature", std::string(64, 'a')}}, 2) + "no");
  HttpStore store(impostor.endpoint(), test_secret());
  const auto value = store.get("k", Deadline::after_seconds(200));
  CHECK(value.status().code() == Code::kPermissionDenied);
  CHECK(value.status().message().find("does not know the secret") != std::string::npos);
}

TEST_CASE("an answer that the server would sign is not believed without a signature") {
  for (const int status : {200, 404, 405, 408, 409, 412, 500, 501, 503, 504}) {
    CAPTURE(status);
    Impostor impostor(net::response_head(status, {}, 2) + "no");
    HttpStore store(impostor.endpoint(), test_secret(), {.reconnect_seconds = 2});
    const auto value = store.wait("k", Deadline::never());
    CHECK(value.status().code() == Code::kPermissionDenied);
    CHECK(value.status().message().find(cat("status ", status, " is not signed")) !=
          std::string::npos);
  }
}

TEST_CASE("a refusal needs no signature") {
  for (const int status : {400, 401, 403, 411, 413, 426, 431}) {
    CAPTURE(status);
    Impostor impostor(net::response_head(status, {}, 2) + "no");
    HttpStore store(impostor.endpoint(), test_secret());
    CHECK(store.get("k", Deadline::after_seconds(200)).status().message().find(": no") !=
          std::string::npos);
  }
}

TEST_CASE("a server that falls silent cannot be reached, long before the call's own time is over") {
  Impostor silent("");
  HttpStore store(silent.endpoint(), test_secret(), {.reconnect_seconds = 1});
  const Deadline far = Deadline::after_seconds(3600);
  CHECK(store.exchange("all", {0, 2, {}}, as_bytes("x"), far).status().code() ==
        Code::kUnavailable);
}

TEST_CASE("an interruption ends calls that wait, and refuses later ones") {
  RunningServer server;
  HttpStore store(server.endpoint(), test_secret());
  REQUIRE(store.set("there", as_bytes("1"), Deadline::after_seconds(200)).ok());
  std::promise<Code> waited, exchanged;
  std::thread waiter(
      [&] { waited.set_value(store.wait("never", Deadline::never()).status().code()); });
  std::thread party([&] {
    exchanged.set_value(
        store.exchange("all", {0, 2, {}}, as_bytes("x"), Deadline::never()).status().code());
  });
  // Release both calls once they have reached the server.
  while (server.run([](Server& running) { return running.waiter_count(); }) < 2) {
    std::this_thread::yield();
  }
  store.interrupt();
  waiter.join();
  party.join();
  CHECK(waited.get_future().get() == Code::kAborted);
  CHECK(exchanged.get_future().get() == Code::kAborted);
  CHECK(store.get("there", Deadline::after_seconds(200)).status().code() == Code::kAborted);
}

}  // namespace hvd::rendezvous
