#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/check.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "horovod/version.h"
#include "launcher/agent/link/link.h"
#include "launcher/protocol/protocol.h"
#include "launcher/protocol/record.h"
#include "net/endpoint.h"
#include "net/frame.h"
#include "net/socket_address.h"

namespace hvd::launcher {

namespace {

constexpr size_t kMaxHead = 4096;
constexpr size_t kMaxMessage = 4096;
// The first lease: the launcher pings an agent that waits for the job at shorter intervals.
constexpr double kOpeningSeconds = 60;

Result<net::SocketAddress> address_of(const std::string& text) {
  HVD_ASSIGN_OR_RETURN(const net::Endpoint endpoint, net::parse_endpoint(text));
  if (endpoint.path.size() >= sizeof(sockaddr_un::sun_path)) {
    return invalid_argument(cat("'", endpoint.path, "' is too long"));
  }
  if (const auto address = net::numeric_address(endpoint)) return *address;
  return invalid_argument(
      cat("'", endpoint.host,
          "' is not an IPv4 or IPv6 address, and the agent does not resolve names"));
}

// Returns false if the deadline passed first.
bool wait_for(int fd, short events, Deadline deadline) {
  pollfd poll{.fd = fd, .events = events, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&poll, 1, deadline.poll_timeout());
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

// Returns the error of a failed connection. kNotFound: nothing listens at the address.
Status not_connected(int error) {
  const std::string sentence = system_error("cannot connect", error).message();
  return error == ECONNREFUSED || error == ENOENT ? not_found(sentence) : unavailable(sentence);
}

Result<UniqueFd> dial(const net::SocketAddress& address, Deadline deadline) {
  UniqueFd socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("cannot make a socket", errno);
  if (::connect(socket.get(), address.get(), address.size) != 0) {
    if (errno != EINPROGRESS) return not_connected(errno);
    if (!wait_for(socket.get(), POLLOUT, deadline)) return deadline_exceeded("nothing answers");
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return not_connected(error);
  }
  const int on = 1;  // has no effect on a Unix socket, which has no delay
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

// A connection before its session: the TLS handshake, the HTTP upgrade, and then framed messages, one at a time.
class Wire {
 public:
  Wire(int socket, Cipher* cipher, Deadline deadline)
      : socket_(socket), cipher_(cipher), deadline_(deadline) {}

  Status shake_hands() {
    while (cipher_ != nullptr) {
      const auto is_done = cipher_->shake_hands();
      const Status sent = send_raw(cipher_->take_output());  // also sends alerts
      if (!is_done.ok()) return is_done.status();
      HVD_RETURN_IF_ERROR(sent);
      if (*is_done) break;
      HVD_RETURN_IF_ERROR(take_in());
    }
    return {};
  }

  Status send(ByteView bytes) {
    if (cipher_ == nullptr) return send_raw(bytes);
    HVD_RETURN_IF_ERROR(cipher_->write(bytes));
    return send_raw(cipher_->take_output());
  }

  Status send(const Message& message) { return send(framed(message)); }

  // Reads single bytes, so that the bytes after a message remain in the socket.
  Result<std::byte> receive_byte() {
    std::byte byte{};
    if (cipher_ == nullptr) {
      HVD_RETURN_IF_ERROR(receive_raw({&byte, 1}).status());
      return byte;
    }
    for (;;) {
      HVD_ASSIGN_OR_RETURN(const auto size, cipher_->read({&byte, 1}));
      if (size == size_t{1}) return byte;
      if (size) return unavailable("the launcher closed the connection");
      HVD_RETURN_IF_ERROR(take_in());
    }
  }

  Result<Message> receive_message() {
    net::FrameParser parser(kMaxMessage);
    for (;;) {
      HVD_ASSIGN_OR_RETURN(const auto frame, parser.next());
      if (frame) return decode(frame->payload);
      HVD_ASSIGN_OR_RETURN(const std::byte byte, receive_byte());
      parser.feed({&byte, 1});
    }
  }

  template <typename T>
  Result<T> receive() {
    HVD_ASSIGN_OR_RETURN(const Message message, receive_message());
    if (const T* expected = std::get_if<T>(&message)) return *expected;
    return internal_error("the other end sent an unexpected message");
  }

 private:
  static Status broken(int error) {
    return unavailable(system_error("the connection broke", error).message());
  }

  Status send_raw(ByteView left) {
    while (!left.empty()) {
      const ssize_t size = ::send(socket_, left.data(), left.size(), MSG_NOSIGNAL);
      if (size >= 0) {
        left = left.subspan(static_cast<size_t>(size));
      } else if (errno != EAGAIN && errno != EINTR) {
        return broken(errno);
      } else if (!wait_for(socket_, POLLOUT, deadline_)) {
        return deadline_exceeded("the launcher does not read");
      }
    }
    return {};
  }

  // Reads at least one byte.
  Result<size_t> receive_raw(std::span<std::byte> buffer) {
    for (;;) {
      if (!wait_for(socket_, POLLIN, deadline_)) return deadline_exceeded("nothing answers");
      const ssize_t size = ::read(socket_, buffer.data(), buffer.size());
      if (size > 0) return static_cast<size_t>(size);
      if (size == 0) return unavailable("the launcher closed the connection");
      if (errno != EAGAIN && errno != EINTR) return broken(errno);
    }
  }

  Status take_in() {
    std::array<std::byte, 16 << 10> buffer;
    HVD_ASSIGN_OR_RETURN(const size_t size, receive_raw(buffer));
    cipher_->feed(ByteView(buffer).first(size));
    return {};
  }

  const int socket_;
  Cipher* const cipher_;
  const Deadline deadline_;
};

// Reads the head of an HTTP response, or at most kMaxHead bytes.
Result<std::string> receive_head(Wire& wire) {
  std::string head;
  while (!head.ends_with("\r\n\r\n") && head.size() < kMaxHead) {
    HVD_ASSIGN_OR_RETURN(const std::byte byte, wire.receive_byte());
    head += static_cast<char>(byte);
  }
  return head;
}

// Requests a connection to the launcher from its rendezvous server (rendezvous/PROTOCOL.md, "Agents").
Status knock(Wire& wire) {
  HVD_RETURN_IF_ERROR(
      wire.send(as_bytes("GET /v1/agent HTTP/1.1\r\n"
                         "Host: rendezvous\r\n"
                         "Connection: Upgrade\r\n"
                         "Upgrade: horovod-agent\r\n\r\n")));
  HVD_ASSIGN_OR_RETURN(const std::string head, receive_head(wire));
  if (head.starts_with("HTTP/1.1 101 ")) return {};
  if (head.starts_with("HTTP/1.1 409 ")) {
    return aborted("it accepts no hosts; start it with --listen");
  }
  if (head.starts_with("HTTP/1.1 426 ")) {
    return failed_precondition(
        "it accepts hosts by TLS only; leave out --insecure-plaintext, or start horovodrun with it "
        "too");
  }
  return failed_precondition(
      "the program that listens there is not a launcher of this version that was started with "
      "--listen");
}

Status not_admitted(const std::string& name) {
  return permission_denied(cat("it did not admit this host, '", printable(name),
                               "': the token here is not the launcher's; copy the launcher's token "
                               "file here"));
}

Status prove_each_other(Wire& wire, ByteView token, const std::string& name, bool is_keyed) {
  HVD_ASSIGN_OR_RETURN(const Challenge challenge, wire.receive<Challenge>());
  Answer answer{.name = name, .version = HVD_VERSION};
  fill_random(answer.nonce);
  answer.proof = prove_agent(token, challenge.nonce, answer.nonce, name);
  HVD_RETURN_IF_ERROR(wire.send(answer));
  const auto admission = wire.receive<Admission>();
  const bool is_closed = admission.status().code() == Code::kUnavailable;
  if (is_closed && !is_keyed) return not_admitted(name);
  if (!admission.ok()) return admission.status();
  if (!is_same(admission->proof, prove_launcher(token, challenge.nonce, answer.nonce))) {
    return permission_denied("the program that answers there does not hold the job's token");
  }
  return {};
}

// Connects to the launcher's server, and performs the TLS handshake and the HTTP upgrade.
Result<Link> connected(const net::SocketAddress& where, Deadline deadline,
                       std::unique_ptr<Cipher> cipher) {
  HVD_ASSIGN_OR_RETURN(UniqueFd socket, dial(where, deadline));
  Wire wire(socket.get(), cipher.get(), deadline);
  HVD_RETURN_IF_ERROR(wire.shake_hands());
  HVD_RETURN_IF_ERROR(knock(wire));
  UniqueFd output(::fcntl(socket.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!output) return system_error("cannot duplicate a descriptor", errno);
  return Link{std::move(socket), std::move(output), std::move(cipher)};
}

}  // namespace

Result<Opening> receive_opening(int input, Cipher* cipher) {
  for (;;) {
    Wire wire(input, cipher, Deadline::after_seconds(kOpeningSeconds));
    const auto message = wire.receive_message();
    if (message.status().code() == Code::kUnavailable) {
      return unavailable("the connection to the launcher ended before the job began");
    }
    if (!message.ok()) return message.status();
    if (const auto* session = std::get_if<OpenSession>(&*message)) return Opening(*session);
    if (const auto* order = std::get_if<Reattach>(&*message)) return Opening(*order);
    if (const auto* rejection = std::get_if<Failed>(&*message)) {
      return aborted(cat("the launcher does not accept this host: ",
                         printable(rejection->sentence, kMaxMessage)));
    }
    if (!std::holds_alternative<Ping>(*message)) {
      return internal_error("the launcher sent a message that does not begin a session");
    }
  }
}

Result<Link> call_home(const std::string& address, ByteView token, const std::string& name,
                       Deadline deadline, std::unique_ptr<Cipher> cipher, bool is_keyed) {
  const std::string context = cat("the launcher at ", address);
  const auto where = address_of(address);
  if (!where.ok()) return where.status().with_context(context);
  auto link = connected(*where, deadline, std::move(cipher));
  if (link.status().code() == Code::kNotFound) {
    return unavailable(link.status().message()).with_context(context);
  }
  if (link.status().code() == Code::kPermissionDenied) {
    return not_admitted(name).with_context(context);
  }
  if (!link.ok()) return link.status().with_context(context);
  Wire wire(link->input.get(), link->cipher.get(), deadline);
  const Status status = prove_each_other(wire, token, name, is_keyed);
  if (!status.ok()) return status.with_context(context);
  return link;
}

Result<Returned> call_again(const std::string& address, Deadline deadline,
                            std::unique_ptr<Cipher> cipher) {
  HVD_ASSIGN_OR_RETURN(const net::SocketAddress where, address_of(address));
  HVD_ASSIGN_OR_RETURN(Link link, connected(where, deadline, std::move(cipher)));
  Wire wire(link.input.get(), link.cipher.get(), deadline);
  HVD_ASSIGN_OR_RETURN(const Challenge challenge, wire.receive<Challenge>());
  return Returned{std::move(link), challenge.nonce};
}

}  // namespace hvd::launcher
