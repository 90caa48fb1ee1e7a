#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <arpa/inet.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/text.h"
#include "launcher/agent/link.h"
#include "launcher/agent/protocol.h"
#include "net/endpoint.h"
#include "net/frame.h"

namespace hvd::launcher {

namespace {

constexpr size_t kMaxHead = 4096;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

Result<Address> unix_address(const std::string& path) {
  Address address;
  auto* name = reinterpret_cast<sockaddr_un*>(&address.storage);
  if (path.size() >= sizeof name->sun_path) return invalid_argument(cat("'", path, "' is too long"));
  name->sun_family = AF_UNIX;
  std::memcpy(name->sun_path, path.data(), path.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  if (path[0] == '@') name->sun_path[0] = '\0';
  else ++address.size;
  return address;
}

Result<Address> address_of(const std::string& text) {
  HVD_ASSIGN_OR_RETURN(const net::Endpoint endpoint, net::parse_endpoint(text));
  if (endpoint.family == net::Endpoint::Family::kUnix) return unix_address(endpoint.path);
  Address address;
  auto* four = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, endpoint.host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(endpoint.port);
    address.size = sizeof *four;
  } else if (::inet_pton(AF_INET6, endpoint.host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(endpoint.port);
    address.size = sizeof *six;
  } else {
    return invalid_argument(cat("'", endpoint.host, "' is no IPv4 or IPv6 address, and the agent "
                                "resolves no names"));
  }
  return address;
}

// False when the deadline passed first.
bool wait_for(int fd, short events, Deadline deadline) {
  pollfd poll{.fd = fd, .events = events, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&poll, 1, deadline.poll_timeout());
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

Result<UniqueFd> dial(const Address& address, Deadline deadline) {
  UniqueFd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("cannot make a socket", errno);
  const auto* where = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::connect(socket.get(), where, address.size) != 0) {
    if (errno != EINPROGRESS) return system_error("cannot connect", errno);
    if (!wait_for(socket.get(), POLLOUT, deadline)) return deadline_exceeded("nobody answers");
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return system_error("cannot connect", error);
  }
  const int on = 1;  // fails on a Unix socket, which has no such delay
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

Status send_all(int socket, ByteView left, Deadline deadline) {
  while (!left.empty()) {
    const ssize_t size = ::send(socket, left.data(), left.size(), MSG_NOSIGNAL);
    if (size >= 0) {
      left = left.subspan(static_cast<size_t>(size));
    } else if (errno != EAGAIN && errno != EINTR) {
      return system_error("the connection broke", errno);
    } else if (!wait_for(socket, POLLOUT, deadline)) {
      return deadline_exceeded("the launcher takes nothing");
    }
  }
  return {};
}

Status send(int socket, const Message& message, Deadline deadline) {
  net::FrameWriter writer;
  writer.put({}, encode(message), net::Urgency::kControl);
  return send_all(socket, writer.take(1), deadline);
}

// Byte by byte, so that nothing behind the message is taken.
template <typename T>
Result<T> receive(int socket, Deadline deadline) {
  net::FrameParser parser(1024);
  for (;;) {
    HVD_ASSIGN_OR_RETURN(const auto frame, parser.next());
    if (frame) {
      HVD_ASSIGN_OR_RETURN(const Message message, decode(frame->payload));
      if (const T* expected = std::get_if<T>(&message)) return *expected;
      return internal_error("the far side answered with another message than the one expected");
    }
    if (!wait_for(socket, POLLIN, deadline)) return deadline_exceeded("the launcher says nothing");
    std::byte byte{};
    const ssize_t size = ::read(socket, &byte, 1);
    if (size == 0) return unavailable("the launcher closed the connection");
    if (size < 0 && errno != EAGAIN && errno != EINTR) {
      return system_error("the connection broke", errno);
    }
    if (size > 0) parser.feed({&byte, 1});
  }
}

// Byte by byte, as receive does: the head of an answer of HTTP, or what is there of it.
Result<std::string> receive_head(int socket, Deadline deadline) {
  std::string head;
  while (!head.ends_with("\r\n\r\n") && head.size() < kMaxHead) {
    if (!wait_for(socket, POLLIN, deadline)) return deadline_exceeded("nobody answers");
    char byte = 0;
    const ssize_t size = ::read(socket, &byte, 1);
    if (size == 0) return unavailable("the server closed the connection");
    if (size < 0 && errno != EAGAIN && errno != EINTR) {
      return system_error("the connection broke", errno);
    }
    if (size > 0) head += byte;
  }
  return head;
}

// Asks the rendezvous server for its launcher (rendezvous/PROTOCOL.md, "Agents").
Status knock(int socket, Deadline deadline) {
  HVD_RETURN_IF_ERROR(send_all(socket, as_bytes("GET /v1/agent HTTP/1.1\r\n"
                                                "Host: rendezvous\r\n"
                                                "Connection: Upgrade\r\n"
                                                "Upgrade: horovod-agent\r\n\r\n"),
                               deadline));
  HVD_ASSIGN_OR_RETURN(const std::string head, receive_head(socket, deadline));
  if (head.starts_with("HTTP/1.1 101 ")) return {};
  if (head.starts_with("HTTP/1.1 409 ")) {
    return aborted("it wants no host now: its job has those that it needs, or it was started "
                   "without --listen");
  }
  return failed_precondition("what listens there is no launcher of this version, started with "
                             "--listen");
}

Status prove_each_other(int socket, ByteView token, const std::string& name, Deadline deadline) {
  HVD_ASSIGN_OR_RETURN(const Challenge challenge, receive<Challenge>(socket, deadline));
  Answer answer{.name = name};
  if (::getrandom(answer.nonce.data(), answer.nonce.size(), 0) !=
      static_cast<ssize_t>(answer.nonce.size())) {
    return system_error("cannot get random bytes", errno);
  }
  answer.proof = prove_agent(token, challenge.nonce, answer.nonce, name);
  HVD_RETURN_IF_ERROR(send(socket, answer, deadline));
  const auto admission = receive<Admission>(socket, deadline);
  if (admission.status().code() == Code::kUnavailable) {
    return permission_denied("it did not admit this host: check that both have the same token");
  }
  if (!admission.ok()) return admission.status();
  if (!is_same(admission->proof, prove_launcher(token, challenge.nonce, answer.nonce))) {
    return permission_denied("who answers there does not hold the job's token");
  }
  return {};
}

}  // namespace

Result<Link> call_home(const std::string& address, ByteView token, const std::string& name,
                       Deadline deadline, Door door) {
  const std::string context = cat("the launcher at ", address);
  const auto where = address_of(address);
  if (!where.ok()) return where.status().with_context(context);
  auto socket = dial(*where, deadline);
  if (!socket.ok()) return socket.status().with_context(context);
  Status status = door == Door::kServer ? knock(socket->get(), deadline) : Status();
  if (status.ok()) status = prove_each_other(socket->get(), token, name, deadline);
  if (!status.ok()) return status.with_context(context);
  UniqueFd output(::fcntl(socket->get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!output) return system_error(context, errno);
  return Link{std::move(*socket), std::move(output)};
}

}  // namespace hvd::launcher
