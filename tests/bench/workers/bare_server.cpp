// The upper bound for the rendezvous server: an epoll loop that checks and makes the same proofs of
// the same requests and stores values, without a server's other work. A second port echoes each
// byte, to measure a round trip.
//
//   bare_server SOCKET TOKEN_FILE        ports: the numbers of both ports
#include <sys/epoll.h>

#include <memory>
#include <thread>
#include <unordered_map>

#include "store_wire.h"
#include "worker.h"

namespace {

using hvd::rendezvous::SessionKey;

class BareServer {
 public:
  explicit BareServer(hvd::Secret secret) : secret_(std::move(secret)) {
    std::tie(store_, store_port_) = bench::listen_on_loopback();
    std::tie(echo_, echo_port_) = bench::listen_on_loopback();
    for (const int listener : {store_, echo_}) watch(listener);
  }
  std::vector<double> ports() const { return {double(store_port_), double(echo_port_)}; }

  [[noreturn]] void run() {
    std::array<epoll_event, 64> events;
    for (;;) {
      const int count = ::epoll_wait(epoll_, events.data(), int(events.size()), -1);
      for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<size_t>(i)].data.fd;
        if (fd == store_ || fd == echo_)
          accept(fd);
        else
          serve(fd);
      }
    }
  }

 private:
  struct Client {
    bool is_echo = false;
    std::optional<SessionKey> key;
    std::string input;
  };

  void watch(int fd) {
    epoll_event event{EPOLLIN, {.fd = fd}};
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }
  void accept(int listener) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    bench::tune(fd);
    clients_[fd].is_echo = listener == echo_;
    watch(fd);
  }
  void serve(int fd) {
    std::array<char, 16384> buffer;
    const ssize_t size = ::read(fd, buffer.data(), buffer.size());
    if (size <= 0) {
      clients_.erase(fd);
      ::close(fd);
      return;
    }
    const std::string_view bytes(buffer.data(), static_cast<size_t>(size));
    Client& client = clients_[fd];
    if (client.is_echo) return send(fd, bytes);
    client.input += bytes;
    while (const size_t end = bench::end_of_message(client.input)) {
      send(fd, answer(client, std::string_view(client.input).substr(0, end)));
      client.input.erase(0, end);
    }
  }
  static void send(int fd, std::string_view bytes) {
    if (::write(fd, bytes.data(), bytes.size()) < 0) ::shutdown(fd, SHUT_RDWR);
  }

  std::string answer(Client& client, std::string_view request) {
    if (!client.key) {
      const std::string nonce = hvd::rendezvous::make_nonce();
      client.key.emplace(secret_, bench::header(request, "Hvd-Nonce"), nonce);
      return hvd::net::response_head(200, {{"Hvd-Nonce", nonce}}, 0);
    }
    const size_t method = request.find(' ');
    const std::string_view target =
        request.substr(method + 1, request.find(' ', method + 1) - method - 1);
    const std::string_view body = request.substr(request.find("\r\n\r\n") + 4);
    const auto proof = hvd::rendezvous::parse_proof(bench::header(request, "Authorization"));
    if (!proof.ok() ||
        !hvd::equal_in_constant_time(hvd::sha256(hvd::as_bytes(body)), proof->body) ||
        !hvd::equal_in_constant_time(
            client.key->sign_request(proof->count, request.substr(0, method), target, proof->body),
            proof->signature)) {
      return hvd::net::response_head(403, {}, 0);
    }
    std::string& value = values_[std::string(target.substr(0, target.find('?')))];
    std::string_view reply;
    if (request.starts_with("PUT"))
      value = body;
    else
      reply = value;
    const std::string signature = hvd::to_hex(
        client.key->sign_response(proof->count, 200, hvd::sha256(hvd::as_bytes(reply))));
    return hvd::net::response_head(200, {{"Hvd-Signature", signature}}, reply.size()) +
           std::string(reply);
  }

  const hvd::Secret secret_;
  const int epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  int store_ = -1, echo_ = -1;
  uint16_t store_port_ = 0, echo_port_ = 0;
  std::unordered_map<int, Client> clients_;
  std::unordered_map<std::string, std::string> values_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  BareServer server(bench::secret_of(argv[2]));
  std::thread([&] { server.run(); }).detach();
  bench::serve(argv[1], 0, {{"ports", [&](const bench::Words&) { return server.ports(); }}});
  std::quick_exit(0);
}
