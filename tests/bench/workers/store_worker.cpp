// Clients of a rendezvous server, for the benches.
//
//   store_worker SOCKET RANK TOKEN_FILE
//
//   rate PORT CLIENTS REQUESTS get|set   requests per second of CLIENTS keep-alive clients, each
//                                        with one request in flight; all requests are signed
//                                        before the clock starts
//   gets PORT SECONDS                    gets per second of one HttpStore
//   reach PORT ECHO_PORT ITERATIONS      latency from a set to the return of a waiting get, and of
//                                        an echoed byte, in alternation: 50th and 99th percentiles,
//                                        in µs
#include <sys/epoll.h>
#include <sys/resource.h>

#include <cmath>
#include <list>

#include "rendezvous/client/http_store.h"
#include "store_wire.h"
#include "worker.h"

namespace {

using bench::Words;
using hvd::cat;

std::string read_message(int fd) {
  std::string bytes;
  std::array<char, 16384> buffer;
  while (bench::end_of_message(bytes) == 0) {
    const ssize_t size = ::read(fd, buffer.data(), buffer.size());
    if (size <= 0) throw std::runtime_error("the server closed the connection");
    bytes.append(buffer.data(), static_cast<size_t>(size));
  }
  return bytes;
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::write(fd, bytes.data(), bytes.size());
    if (size < 0) bench::fail("cannot write to the server");
    bytes.remove_prefix(static_cast<size_t>(size));
  }
}

class Connection {
 public:
  Connection(uint16_t port, const hvd::Secret& secret)
      : fd_(bench::connect_to_port(port)), signer_(secret) {
    write_all(fd_, signer_.hello());
    signer_.take_hello(read_message(fd_));
  }
  ~Connection() { ::close(fd_); }
  Connection(const Connection&) = delete;

  int fd() const { return fd_; }
  std::string signed_request(std::string_view method, std::string_view target,
                             std::string_view body = {}) {
    return signer_.request(method, target, body);
  }
  std::string ask(std::string_view request) {
    write_all(fd_, request);
    return read_message(fd_);
  }

 private:
  int fd_;
  bench::Signer signer_;
};

void expect_ok(std::string_view response) {
  if (!response.starts_with("HTTP/1.1 200")) {
    throw std::runtime_error(cat("the server answered ", response.substr(0, 200)));
  }
}

std::vector<double> rate(const hvd::Secret& secret, const Words& words) {
  const auto port = static_cast<uint16_t>(std::stoi(words.at(0)));
  const size_t requests = std::stoul(words.at(2));
  const std::string_view method = words.at(3) == "get" ? "GET" : "PUT";
  struct Client {
    Client(uint16_t p, const hvd::Secret& s) : connection(p, s) {}
    Connection connection;
    std::vector<std::string> requests;
    std::string input;
    size_t done = 0;
  };
  std::list<Client> clients;
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  for (int i = 0; i < std::stoi(words.at(1)); ++i) {
    Client& client = clients.emplace_back(port, secret);
    const std::string target = cat("/v1/keys/k", i);
    expect_ok(client.connection.ask(client.connection.signed_request("PUT", target, "12345678")));
    for (size_t n = 0; n < requests; ++n) {
      client.requests.push_back(
          client.connection.signed_request(method, target, method == "GET" ? "" : "12345678"));
    }
    epoll_event event{EPOLLIN, {.ptr = &client}};
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, client.connection.fd(), &event);
  }
  const double start = bench::now_us();
  for (Client& client : clients) write_all(client.connection.fd(), client.requests[0]);
  std::array<epoll_event, 64> events;
  std::array<char, 16384> buffer;
  for (size_t left = clients.size(); left > 0;) {
    const int count = ::epoll_wait(epoll, events.data(), int(events.size()), 30'000);
    if (count <= 0) throw std::runtime_error("the server answers no more");
    for (int i = 0; i < count; ++i) {
      Client& client = *static_cast<Client*>(events[static_cast<size_t>(i)].data.ptr);
      const ssize_t size = ::read(client.connection.fd(), buffer.data(), buffer.size());
      if (size <= 0) throw std::runtime_error("the server closed a connection");
      client.input.append(buffer.data(), static_cast<size_t>(size));
      if (bench::end_of_message(client.input) == 0) continue;
      expect_ok(client.input);
      client.input.clear();
      if (++client.done < requests) {
        write_all(client.connection.fd(), client.requests[client.done]);
      } else {
        --left;
      }
    }
  }
  const double seconds = (bench::now_us() - start) / 1e6;
  ::close(epoll);
  return {double(requests * clients.size()) / seconds};
}

std::vector<double> gets(const hvd::Secret& secret, const Words& words) {
  auto store = hvd::rendezvous::HttpStore::open(cat("tcp:127.0.0.1:", words.at(0)), secret);
  if (!store.ok()) throw std::runtime_error(store.error().message());
  const auto soon = [] { return hvd::Deadline::after_seconds(10); };
  const hvd::Status set = (*store)->set("key", hvd::as_bytes("12345678"), soon());
  if (!set.ok()) throw std::runtime_error(set.message());
  const double start = bench::now_us(), end = start + 1e6 * std::stod(words.at(1));
  double count = 0;
  for (; bench::now_us() < end; ++count) {
    if (!(*store)->get("key", soon()).ok()) throw std::runtime_error("the key is not there");
  }
  return {count / ((bench::now_us() - start) / 1e6)};
}

std::vector<double> percentiles(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[times.size() * 99 / 100]};
}

double round_trip(int fd) {
  char byte = 'x';
  const double start = bench::now_us();
  if (::write(fd, &byte, 1) != 1 || ::read(fd, &byte, 1) != 1) bench::fail("no echo");
  return bench::now_us() - start;
}

std::vector<double> reach(const hvd::Secret& secret, const Words& words) {
  const auto port = static_cast<uint16_t>(std::stoi(words.at(0)));
  Connection setter(port, secret), getter(port, secret), looker(port, secret);
  const std::string round = hvd::rendezvous::make_nonce();
  const int plain = bench::connect_to_port(static_cast<uint16_t>(std::stoi(words.at(1))));
  std::vector<double> times, round_trips;
  for (int i = 0; i < std::stoi(words.at(2)); ++i) {
    // The first round trip warms the server up, as each put does.
    round_trip(plain);
    round_trips.push_back(round_trip(plain));
    const std::string target = cat("/v1/keys/", round, i);
    const std::string set = setter.signed_request("PUT", target, "12345678");
    write_all(getter.fd(), getter.signed_request("GET", target + "?wait=10000"));
    // Wait until /status shows the waiting get; the server handles requests in order.
    while (looker.ask(looker.signed_request("GET", "/status")).find(round) == std::string::npos) {
    }
    const double start = bench::now_us();
    write_all(setter.fd(), set);
    expect_ok(read_message(getter.fd()));
    times.push_back(bench::now_us() - start);
    expect_ok(read_message(setter.fd()));
    expect_ok(setter.ask(setter.signed_request("DELETE", target)));
  }
  ::close(plain);
  const auto found = percentiles(std::move(times)), plainly = percentiles(std::move(round_trips));
  return {found[0], found[1], plainly[0], plainly[1]};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const hvd::Secret secret = bench::secret_of(argv[3]);
  bench::serve(argv[1], std::stoi(argv[2]),
               {{"rate", [&](const Words& words) { return rate(secret, words); }},
                {"gets", [&](const Words& words) { return gets(secret, words); }},
                {"reach", [&](const Words& words) { return reach(secret, words); }}});
  return 0;
}
