#include "launcher/observe/metrics_server.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/metrics/metrics_text.h"
#include "base/text.h"
#include "net/resolve.h"
#include "net/socket_address.h"

namespace hvd::launcher {
namespace {

constexpr char kText[] =
    "# HELP horovod_a_total Things.\n# TYPE horovod_a_total counter\nhorovod_a_total{job_id=\"1\"} "
    "1\n";

LaunchSettings at(const std::string& address) {
  LaunchSettings settings;
  settings.output.metrics_port = address;
  return settings;
}

// A server on the loop of its own thread.
class Served {
 public:
  explicit Served(MetricsServerLimits limits = {}, std::chrono::milliseconds takes = {})
      : port_(MetricsPort::open(at("0"))) {
    REQUIRE(port_);
    server_ = std::make_shared<MetricsServer>(
        loop_.get_executor(), port_.get(),
        [this, takes]() -> net::Task<std::string> {
          ++asked;
          net::asio::steady_timer timer(loop_, takes);
          co_await timer.async_wait(net::use_tuple);
          co_return kText;
        },
        limits);
    server_->on(Starting{});
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Served() {
    end();
    thread_.join();
  }

  void end() { net::asio::co_spawn(loop_, server_->end(), net::asio::detached); }

  UniqueFd connect() const {
    const auto address = net::resolve(*net::parse_endpoint(cat("tcp:", port_->target())));
    REQUIRE(address.ok());
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(socket.get(), address->front().get(), address->front().size) == 0);
    return socket;
  }

  std::string ask(const std::string& request) const {
    const UniqueFd socket = connect();
    REQUIRE(::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) > 0);
    return read_all(socket);
  }
  std::string get(const std::string& path, const std::string& fields = "") const {
    return get_by("localhost", path, fields);
  }
  std::string get_by(const std::string& host, const std::string& path,
                     const std::string& fields = "") const {
    return ask(cat("GET ", path, " HTTP/1.1\r\nHost: ", host, "\r\n", fields, "\r\n"));
  }

  static std::string read_all(const UniqueFd& socket) {
    std::string text;
    std::array<char, 4096> piece;
    for (;;) {
      pollfd watched{.fd = socket.get(), .events = POLLIN, .revents = 0};
      REQUIRE(::poll(&watched, 1, 10'000) == 1);
      const ssize_t size = ::recv(socket.get(), piece.data(), piece.size(), 0);
      if (size <= 0) return text;
      text.append(piece.data(), static_cast<size_t>(size));
    }
  }

  std::atomic<int> asked = 0;

 private:
  net::asio::io_context loop_{1};
  const std::unique_ptr<MetricsPort> port_;
  std::shared_ptr<MetricsServer> server_;
  std::thread thread_;
};

TEST_CASE("a port of this machine is not asked for by a name that a page may choose") {
  const Served served;
  for (const char* host :
       {"localhost", "LocalHost:9400", "127.0.0.1:9400", "127.0.0.1", "[::1]:1"}) {
    CAPTURE(host);
    CHECK(served.get_by(host, "/healthz").starts_with("HTTP/1.1 200"));
  }
  for (const char* host : {"x", "rebound.example:9400", "127.0.0.1.example", "10.0.0.1"}) {
    CAPTURE(host);
    CHECK(served.get_by(host, "/metrics").starts_with("HTTP/1.1 421"));
  }
  CHECK(served.asked == 0);
}

TEST_CASE("the metrics, and whether the job runs") {
  const Served served;
  const std::string text = served.get("/metrics");
  CHECK(text.starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(text.find("Content-Type: text/plain; version=0.0.4") != std::string::npos);
  CHECK(text.ends_with(cat("\r\n\r\n", kText)));
  CHECK(served.get("/metrics?x=y").ends_with(kText));
  const std::string open = served.get("/metrics", "Accept: application/openmetrics-text;q=0.5\r\n");
  CHECK(open.find("Content-Type: application/openmetrics-text; version=1.0.0") !=
        std::string::npos);
  CHECK(open.ends_with(
      "# HELP horovod_a Things.\n# TYPE horovod_a counter\nhorovod_a_total{job_id=\"1\"} 1\n"
      "# EOF\n"));
  CHECK(served.get("/healthz").ends_with("\r\n\r\nok\n"));
  CHECK(served.asked == 1);
}

TEST_CASE("other requests get a status, and cost nothing") {
  const Served served;
  CHECK(served.get("/").starts_with("HTTP/1.1 404 "));
  CHECK(served.get("/metrics/").starts_with("HTTP/1.1 404 "));
  CHECK(served.ask("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
            .starts_with("HTTP/1.1 4"));
  CHECK(served.ask("\x16\x03\x01 no http\r\n\r\n").starts_with("HTTP/1.1 400 "));
  CHECK(served.get("/metrics", cat("X: ", std::string(9000, 'x'), "\r\n"))
            .starts_with("HTTP/1.1 431 "));
  CHECK(served.asked == 0);
}

TEST_CASE("many clients cost one question") {
  const Served served({}, std::chrono::milliseconds(100));
  std::vector<std::thread> clients;
  std::atomic<int> right = 0;
  for (int i = 0; i < 10; ++i) {
    clients.emplace_back([&] {
      if (served.get("/metrics").ends_with(kText)) ++right;
    });
  }
  for (std::thread& client : clients) client.join();
  CHECK(right == 10);
  CHECK(served.asked == 1);
}

TEST_CASE("a client that does not ask goes after a time, or for others") {
  const Served served({.connections = 2, .connection = std::chrono::milliseconds(300)});
  const UniqueFd first = served.connect();
  const UniqueFd second = served.connect();
  REQUIRE(::send(second.get(), "GET /metr", 9, MSG_NOSIGNAL) == 9);
  CHECK(served.get("/healthz").ends_with("ok\n"));
  CHECK(Served::read_all(first).empty());
  CHECK(Served::read_all(second).empty());
  CHECK(served.get("/healthz").ends_with("ok\n"));
}

TEST_CASE("the end waits for the question, and clients get no half answer") {
  Served served({}, std::chrono::milliseconds(200));
  const UniqueFd client = served.connect();
  constexpr std::string_view kRequest = "GET /metrics HTTP/1.1\r\n\r\n";
  REQUIRE(::send(client.get(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL) > 0);
  while (served.asked == 0) std::this_thread::yield();
  served.end();
  CHECK(Served::read_all(client).empty());
}

TEST_CASE("where the port may listen") {
  for (const char* address : {"0", "127.0.0.1:0", "localhost:0", "127.8.0.1:0", "[::1]:0"}) {
    CAPTURE(address);
    CHECK(check_metrics_port(at(address)).ok());
  }
  for (const char* address : {"", "x", "-1", "65536", "127.0.0.1", "1:2:3", "host:", "/tmp/x:y"}) {
    CAPTURE(address);
    const Status status = check_metrics_port(at(address));
    REQUIRE_FALSE(status.ok());
    CHECK(status.message().find("no port and no address") != std::string::npos);
  }
  for (const char* address : {":0", "*:0", "0.0.0.0:0", "[::]:0", "10.0.0.1:0", "myhost:0"}) {
    CAPTURE(address);
    LaunchSettings settings = at(address);
    CHECK_FALSE(check_metrics_port(settings).ok());
    settings.output.metrics_insecure = true;
    CHECK(check_metrics_port(settings).ok());
    settings.output.metrics_insecure = false;
    settings.join.tls_cert = "cert.pem";
    CHECK(check_metrics_port(settings).ok());
  }
  LaunchSettings alone;
  CHECK(check_metrics_port(alone).ok());
  CHECK(MetricsPort::open(alone) == nullptr);
  alone.output.metrics_insecure = true;
  CHECK_FALSE(check_metrics_port(alone).ok());
}

TEST_CASE("a port that is taken is no error of the job") {
  const auto port = MetricsPort::open(at("0"));
  REQUIRE(port);
  CHECK(port->target().starts_with("127.0.0.1:"));
  CHECK_FALSE(port->is_protected());
  CHECK(MetricsPort::open(at(port->target())) == nullptr);
}

}  // namespace
}  // namespace hvd::launcher
