// TLS by a key that both ends hold: a TlsSession and a TlsFront over a socket pair.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <optional>

#include "net/tls/tls_front.h"
#include "net/tls/tls_session.h"

namespace hvd::net {
namespace {

Digest key_of(char letter) {
  Digest key;
  key.fill(static_cast<std::byte>(letter));
  return key;
}

// A server, and this test as its client.
class TlsConnection {
 public:
  explicit TlsConnection(const TlsServerOptions& options) {
    TlsServerOptions counting = options;
    counting.on_other_key = [this](const std::string&) { ++other_keys; };
    counting.on_altered = [this](const std::string&) { ++altered; };
    auto front = TlsFront::make(std::move(counting));
    REQUIRE_MESSAGE(front.ok(), front.status().message());
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    fd_ = ends[0];
    front->take(StreamSocket(loop_, asio::generic::stream_protocol(AF_UNIX, 0), ends[1]),
                [this](AcceptedSocket socket) { adopted.emplace(std::move(socket)); });
  }
  TlsConnection(const TlsConnection&) = delete;
  ~TlsConnection() {
    adopted.reset();  // destroyed before the loop that it uses
    ::close(fd_);
  }

  void send(ByteView bytes) {
    REQUIRE(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
    poll();
  }
  Bytes receive() {
    poll();
    Bytes bytes(1 << 16);
    const ssize_t size = ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return bytes;
  }
  Result<bool> shake_hands(TlsSession& session) {
    for (;;) {
      auto is_done = session.shake_hands();
      const Bytes output = session.take_output();
      if (!output.empty()) send(output);
      if (!is_done.ok() || *is_done) return is_done;
      const Bytes input = receive();
      if (input.empty()) return unavailable("the server sends nothing");
      session.feed(input);
    }
  }
  // Returns the bytes that the server reads from the client.
  std::string read() {
    poll();
    char buffer[256];
    return std::string(buffer, adopted->try_read(asio::buffer(buffer), read_error));
  }
  // Starts to write, and polls the loop.
  void write(ByteView head, ByteView body) {
    asio::co_spawn(
        loop_,
        [this, head, body]() -> Task<void> {
          const auto [error, size] = co_await adopted->write(
              asio::buffer(head.data(), head.size()), asio::buffer(body.data(), body.size()));
          CHECK_FALSE(error);
          written = size;
        },
        asio::detached);
    poll();
  }

  std::optional<AcceptedSocket> adopted;
  error_code read_error;  // result of the last read()
  size_t written = 0;
  int other_keys = 0, altered = 0;

  void poll() {
    loop_.restart();
    loop_.poll();
  }

 private:
  asio::io_context loop_{1};
  int fd_ = -1;
};

TlsSession session_with(char letter) {
  auto session = TlsSession::with_shared_key(key_of(letter));
  REQUIRE(session.ok());
  return std::move(*session);
}

}  // namespace

TEST_CASE("two ends with the same key exchange bytes that nobody else reads") {
  TlsConnection connection({.shared_key = key_of('a')});
  TlsSession session = session_with('a');
  const auto is_done = connection.shake_hands(session);
  REQUIRE_MESSAGE(is_done.ok(), is_done.status().message());
  REQUIRE(session.write(as_bytes("secret")).ok());
  const Bytes sent = session.take_output();
  CHECK(as_text(sent).find("secret") == std::string_view::npos);
  connection.send(sent);
  REQUIRE(connection.adopted.has_value());
  CHECK(connection.adopted->is_encrypted());
  CHECK(connection.read() == "secret");
  CHECK(connection.other_keys == 0);
}

TEST_CASE("another key is refused on both sides") {
  TlsConnection connection({.shared_key = key_of('a')});
  TlsSession session = session_with('b');
  CHECK(connection.shake_hands(session).status().code() == Code::kPermissionDenied);
  CHECK(connection.other_keys == 1);
  CHECK_FALSE(connection.adopted.has_value());
}

TEST_CASE("an altered byte ends the stream and is not delivered") {
  TlsConnection connection({.shared_key = key_of('a')});
  TlsSession session = session_with('a');
  REQUIRE(connection.shake_hands(session).ok());
  REQUIRE(session.write(as_bytes("order")).ok());
  Bytes sent = session.take_output();
  sent.back() ^= std::byte{1};
  connection.send(sent);
  REQUIRE(connection.adopted.has_value());
  CHECK(connection.read().empty());
  CHECK(connection.read_error == boost::system::errc::bad_message);
  CHECK(connection.altered == 1);
  // The client receives the server's alert.
  session.feed(connection.receive());
  std::byte buffer[16];
  const auto size = session.read(buffer);
  REQUIRE_FALSE(size.ok());
  CHECK(size.status().message().starts_with("bytes were altered in transit"));
}

TEST_CASE("a client that reads late gets a large answer in full") {
  TlsConnection connection({.shared_key = key_of('a')});
  TlsSession session = session_with('a');
  REQUIRE(connection.shake_hands(session).ok());
  connection.poll();
  REQUIRE(connection.adopted.has_value());
  Bytes head(1000, std::byte{'h'}), body(3 << 20);
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<std::byte>(i * 7 >> 3);
  // Writes as much as the socket takes; write() then continues where try_write() stopped.
  error_code error;
  const size_t sent = connection.adopted->try_write(asio::buffer(head),
                                                    asio::buffer(body.data(), body.size()), error);
  CHECK(error == asio::error::would_block);
  REQUIRE(sent >= head.size());
  REQUIRE(sent < head.size() + body.size());
  const ByteView rest = ByteView(body).subspan(sent - head.size());
  connection.write({}, rest);
  CHECK(connection.written == 0);
  Bytes got;
  std::vector<std::byte> buffer(1 << 16);
  while (got.size() < head.size() + body.size()) {
    const Bytes more = connection.receive();
    REQUIRE_FALSE(more.empty());
    session.feed(more);
    for (;;) {
      const auto size = session.read(buffer);
      REQUIRE_MESSAGE(size.ok(), size.status().message());
      if (!*size) break;
      got.insert(got.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(**size));
    }
  }
  connection.poll();
  CHECK(connection.written == rest.size());
  head.insert(head.end(), body.begin(), body.end());
  CHECK(got == head);
}

TEST_CASE("each side learns of the end of the other's bytes") {
  TlsConnection connection({.shared_key = key_of('a')});
  TlsSession session = session_with('a');
  REQUIRE(connection.shake_hands(session).ok());
  connection.poll();
  REQUIRE(connection.adopted.has_value());
  REQUIRE(session.write(as_bytes("last")).ok());
  session.end();
  connection.send(session.take_output());
  CHECK(connection.read() == "last");
  CHECK(connection.read().empty());
  CHECK(connection.read_error == asio::error::eof);
  connection.adopted->close();
  session.feed(connection.receive());
  std::byte buffer[16];
  const auto size = session.read(buffer);
  REQUIRE(size.ok());
  CHECK(*size == size_t{0});
}

TEST_CASE("a handshake beyond the limit ends the oldest one") {
  auto front = TlsFront::make({.shared_key = key_of('a'), .limits = {.unproven = 2}});
  REQUIRE(front.ok());
  asio::io_context loop(1);
  std::vector<int> clients;
  int adopted = 0;
  for (int i = 0; i < 3; ++i) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    clients.push_back(ends[0]);
    front->take(StreamSocket(loop, asio::generic::stream_protocol(AF_UNIX, 0), ends[1]),
                [&](const AcceptedSocket&) { ++adopted; });
    loop.poll();
    loop.restart();
  }
  char byte = 0;
  CHECK(::recv(clients[0], &byte, 1, MSG_DONTWAIT) == 0);  // closed by the server
  CHECK(::recv(clients[1], &byte, 1, MSG_DONTWAIT) < 0);
  CHECK(::recv(clients[2], &byte, 1, MSG_DONTWAIT) < 0);
  // The end of a client's handshake makes room for another client.
  REQUIRE(::send(clients[1], "plain", 5, MSG_NOSIGNAL) == 5);
  loop.poll();
  loop.restart();
  CHECK(adopted == 1);
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  clients.push_back(ends[0]);
  front->take(StreamSocket(loop, asio::generic::stream_protocol(AF_UNIX, 0), ends[1]),
              [&](const AcceptedSocket&) { ++adopted; });
  loop.poll();
  CHECK(::recv(clients[2], &byte, 1, MSG_DONTWAIT) < 0);
  for (const int client : clients) ::close(client);
  loop.restart();
  loop.run();  // the handshakes end
}

TEST_CASE(
    "a server with a certificate and without the key is no server for a client with the key") {
  const std::string name = "/tmp/hvd-tls-key-" + std::to_string(::getpid());
  const std::string make =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
      "-days 2 -subj /CN=a -keyout " +
      name + ".key -out " + name + ".pem 2>/dev/null";
  REQUIRE(std::system(make.c_str()) == 0);
  const TlsServerOptions by_certificate{.certificate = name + ".pem", .key = name + ".key"};
  TlsServerOptions by_both = by_certificate;
  by_both.shared_key = key_of('a');
  {
    TlsConnection connection(by_certificate);
    TlsSession session = session_with('a');
    const auto is_done = connection.shake_hands(session);
    CHECK(is_done.status().code() == Code::kFailedPrecondition);
    CHECK(is_done.status().message().find("a certificate, and no shared key") != std::string::npos);
  }
  {
    TlsConnection connection(by_both);
    TlsSession session = session_with('a');
    CHECK(connection.shake_hands(session).ok());
  }
  {
    TlsConnection connection(by_both);
    TlsSession session = session_with('b');
    CHECK(connection.shake_hands(session).status().code() == Code::kPermissionDenied);
    CHECK_FALSE(connection.adopted.has_value());
  }
  ::unlink((name + ".pem").c_str());
  ::unlink((name + ".key").c_str());
}

TEST_CASE("a client that begins with something else than TLS is passed on as it is") {
  TlsConnection connection({.shared_key = key_of('a')});
  connection.send(as_bytes("GET /health"));
  REQUIRE(connection.adopted.has_value());
  CHECK_FALSE(connection.adopted->is_encrypted());
  CHECK(connection.read() == "GET /health");
}

TEST_CASE("a server without TLS is no server for a client with the key") {
  TlsSession session = session_with('a');
  REQUIRE(*session.shake_hands() == false);
  session.take_output();
  session.feed(as_bytes("HTTP/1.1 400 Bad Request\r\n\r\n"));
  const auto is_done = session.shake_hands();
  CHECK(is_done.status().code() == Code::kFailedPrecondition);
  CHECK(is_done.status().message().find("does not speak TLS") != std::string::npos);
}

}  // namespace hvd::net
