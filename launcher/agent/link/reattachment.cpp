#include "launcher/agent/link/reattachment.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "launcher/agent/link/accepting.h"
#include "launcher/protocol/record.h"
#include "net/packet_socket.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kWhom = "the agent's new process";

std::string socket_name(const SessionId& session) {
  return cat("horovod-agent/link/", to_hex(ByteView(session).first(16)));
}

constexpr double kFirstDialPause = 0.1;
constexpr double kLongestDialPause = 1;
// If nothing has listened on the port for this long, the launcher has ended.
constexpr std::chrono::seconds kRefused{5};

}  // namespace

Status Reattachment::listen(const SessionId& session, OnConnection on_connection) {
  HVD_ASSIGN_OR_RETURN(listener_, net::listen_for_packets(socket_name(session)));
  on_connection_ = std::move(on_connection);
  const bool is_watched = loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) {
    accept_all(loop_, listener_, [this](UniqueFd caller) { on_caller(std::move(caller)); });
  });
  if (is_watched) return {};
  listener_.reset();
  return system_error("cannot watch a Unix socket", errno);
}

void Reattachment::accept_again() {
  if (listener_) loop_.change(listener_.get(), EPOLLIN);
}

void Reattachment::close() {
  for (UniqueFd* each : {&listener_, &caller_}) {
    if (*each) loop_.unwatch(each->get());
    each->reset();
  }
}

void Reattachment::on_caller(UniqueFd caller) {
  if (caller_) loop_.unwatch(caller_.get());
  caller_ = std::move(caller);
  loop_.watch(caller_.get(), EPOLLIN, [this](uint32_t) { on_packet(); });
}

void Reattachment::on_packet() {
  auto packet = net::receive_packet(caller_.get(), kWhom);
  if (packet.ok() && !*packet) return;
  loop_.unwatch(caller_.get());
  UniqueFd caller = std::move(caller_);
  Returned returned;
  if (!packet.ok() || (*packet)->fds.size() != 2 ||
      (*packet)->bytes.size() != returned.challenge.size()) {
    return;
  }
  auto link = taken_over((*packet)->fds[0].get(), (*packet)->fds[1].get());
  if (!link.ok()) return;
  returned.connection = std::move(*link);
  std::copy((*packet)->bytes.begin(), (*packet)->bytes.end(), returned.challenge.begin());
  on_connection_(std::move(returned), std::move(caller));
}

int hand_over(const Reattach& order) {
  // Schedulers send signals to every process of a job. This process ends with its connection, not by a signal.
  for (const int number : {SIGHUP, SIGINT, SIGPIPE, SIGALRM, SIGTERM, SIGUSR1, SIGUSR2, SIGIO,
                           SIGXCPU, SIGVTALRM, SIGPROF, SIGPWR}) {
    std::signal(number, SIG_IGN);
  }
  auto agent = net::connect_for_packets(socket_name(order.session));
  Status status = agent.status();
  // Check the user: after the agent's end, another user could have bound its name.
  if (status.ok() && !is_of_this_user(agent->get())) status = not_found("the agent has ended");
  if (status.ok()) {
    status =
        net::send_packet(agent->get(), order.nonce, {STDIN_FILENO, STDOUT_FILENO}, kWhom).status();
  }
  // After other errors, such as a lack of descriptors, the launcher tries again.
  if (status.code() == Code::kNotFound) {
    const Bytes frame = framed(Failed{"the agent there has ended"});
    (void)!::write(STDOUT_FILENO, frame.data(), frame.size());
  }
  if (!status.ok()) return 1;
  // Wait until the agent closes the socket, when another connection has replaced this one or when the agent ends.
  pollfd end{.fd = agent->get(), .events = POLLIN, .revents = 0};
  while (::poll(&end, 1, -1) < 0 && errno == EINTR) {
  }
  return 0;
}

void Redialler::begin() {
  refused_since_.reset();
  pause_ = kFirstDialPause;
  if (!call_.is_running()) dial_at_ = Deadline::after_seconds(0);
}

void Redialler::continue_later() {
  dial_at_ = Deadline::after_seconds(pause_);
  pause_ = std::min(2 * pause_, kLongestDialPause);
}

void Redialler::stop() {
  call_.abandon();
  dial_at_ = Deadline::never();
}

void Redialler::on_deadline() {
  if (!dial_at_.passed()) return;
  dial_at_ = Deadline::never();
  const auto result = std::make_shared<std::optional<Result<Returned>>>();
  if (!call_.start([result, dial = dial_] { result->emplace(dial()); },
                   [this, result] { on_result(**result); })) {
    continue_later();
  }
}

void Redialler::on_result(Result<Returned>& result) {
  if (result.ok()) return on_dialled_(std::move(result));
  if (result.status().code() != Code::kNotFound) {
    refused_since_.reset();
  } else if (!refused_since_) {
    refused_since_ = Clock::now();
  } else if (Clock::now() - *refused_since_ >= kRefused) {
    return on_dialled_(result.status());
  }
  continue_later();
}

}  // namespace hvd::launcher
