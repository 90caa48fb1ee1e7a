// The first byte chooses. 0 and 1: the rest arrives from a program without the secret, which has connected or is connected
// to. 2: the rest arrives after a proof, as a message without a code. Nothing of it is accepted. 3: each line is from a host
// with the secret: a request if it is a JSON object, else raw bytes.
#include <sys/socket.h>

#include <optional>
#include <string>
#include <thread>

#include "base/text.h"
#include "fuzz/target.h"
#include "launcher/agent/doctor/pair_meter.h"

namespace {

using namespace hvd;
using namespace hvd::launcher;

struct Sockets {
  GuardedFd one, other;
};

Sockets connected() {
  const NoFork no_fork;
  int ends[2];
  HVD_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  return {GuardedFd(UniqueFd(ends[0])), GuardedFd(UniqueFd(ends[1]))};
}

// Sends the lines, and closes the connection.
void speak(ProvenStream& stream, const std::string& text, Deadline deadline) {
  for (const std::string& line : split(text, '\n')) {
    const auto message = nlohmann::json::parse(line, nullptr, false);
    const Status status = message.is_object() ? stream.send(message, deadline)
                                              : stream.write(as_bytes(line), deadline);
    if (!status.ok()) return;
  }
}

}  // namespace

HVD_FUZZ_TARGET(proven_stream) {
  if (size == 0) return;
  static const Secret secret = Secret::random();
  const Deadline deadline = Deadline::after_seconds(20);
  const ByteView rest = bytes.subspan(1);
  Sockets sockets = connected();
  if (data[0] % 4 < 2) {
    HVD_CHECK(::send(sockets.one.get(), rest.data(), rest.size(), 0) >= 0);
    ::shutdown(sockets.one.get(), SHUT_WR);
    HVD_CHECK(data[0] % 4 == 0
                  ? !ProvenStream::accept(std::move(sockets.other), secret, "fuzz", deadline).ok()
                  : !ProvenStream::join(std::move(sockets.other), secret, "fuzz", deadline).ok());
    return;
  }
  std::thread client([&, socket = std::move(sockets.one)]() mutable {
    auto stream = ProvenStream::join(std::move(socket), secret, "fuzz", deadline);
    HVD_CHECK(stream.ok());
    if (data[0] % 4 == 3)
      speak(*stream, std::string(as_text(rest)), deadline);
    else
      static_cast<void>(stream->write(rest, deadline));
  });
  {
    auto stream = ProvenStream::accept(std::move(sockets.other), secret, "fuzz", deadline);
    HVD_CHECK(stream.ok());
    if (data[0] % 4 == 3)
      static_cast<void>(serve_pair(*stream));
    else
      HVD_CHECK(!stream->receive(deadline).ok());
  }
  client.join();
}
