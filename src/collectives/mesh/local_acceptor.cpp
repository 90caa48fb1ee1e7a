#include "collectives/mesh/local_acceptor.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log/log.h"
#include "base/lost_peer.h"
#include "base/text.h"
#include "net/packet_socket.h"
#include "net/tcp_transport.h"

namespace hvd::collectives {
namespace {

// Maximum number of unproven connections, in addition to one for each member.
constexpr size_t kSpareRoom = 16;
constexpr auto kSilentTimeout = std::chrono::seconds(10);
// The pause after an accept that failed for lack of descriptors or memory.
constexpr double kSecondsBeforeAccept = 0.1;

}  // namespace

Bytes Application::encode() const {
  return ByteWriter().put(rank).put_raw(nonce).put_raw(proof).take();
}

std::optional<Application> Application::decode(ByteView bytes) {
  ByteReader in(bytes);
  Application application;
  application.rank = in.get<int32_t>();
  const ByteView nonce = in.get_raw(application.nonce.size());
  const ByteView proof = in.get_raw(application.proof.size());
  if (!in.finish("an application").ok()) return std::nullopt;
  std::copy(nonce.begin(), nonce.end(), application.nonce.begin());
  std::copy(proof.begin(), proof.end(), application.proof.begin());
  return application;
}

Result<std::map<int32_t, LocalAcceptor::PendingPeer>> LocalAcceptor::receive(
    const std::vector<PeerRecord>& records, Deadline deadline) {
  while (admitted_.size() < members_.size()) {
    if (pause_end_.passed()) pause_end_ = Deadline::never();
    drop_silent();
    std::vector<pollfd> entries{{pause_end_.is_never() ? listener_ : -1, POLLIN, 0},
                                {interruption_, POLLIN, 0}};
    const size_t peers = entries.size();
    for (const PendingPeer& peer : waiting_) entries.push_back({peer.socket.get(), POLLIN, 0});
    const int count = ::poll(entries.data(), entries.size(), next(deadline).poll_timeout());
    if (count < 0 && errno != EINTR) return system_error("cannot wait for local ranks", errno);
    if (count == 0 && deadline.passed()) return late(records);
    if (entries[1].revents != 0) return aborted("a rank of the job was lost during the start");
    for (size_t i = entries.size() - 1; count > 0 && i >= peers; --i) {
      if (entries[i].revents != 0) examine(i - peers);
    }
    if (count > 0 && entries[0].revents != 0) accept_peer();
  }
  return std::move(admitted_);
}

void LocalAcceptor::drop_silent() {
  const auto now = Clock::now();
  std::erase_if(waiting_,
                [now](const PendingPeer& peer) { return now - peer.since >= kSilentTimeout; });
}

Deadline LocalAcceptor::next(Deadline deadline) const {
  Clock::time_point time = std::min(deadline.time(), pause_end_.time());
  if (!waiting_.empty()) time = std::min(time, waiting_.front().since + kSilentTimeout);
  return Deadline::at(time);
}

GuardedFd LocalAcceptor::accept_connection() {
  const NoFork hold;
  return GuardedFd(UniqueFd(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
}

void LocalAcceptor::accept_peer() {
  GuardedFd socket = accept_connection();
  if (socket) return send_challenge(std::move(socket));
  const int error = errno;
  if (!net::is_shortage(error)) return;
  pause_end_ = Deadline::after_seconds(kSecondsBeforeAccept);
  if (std::exchange(has_warned_, true)) return;
  log::warning(cat("rank ", rank_, " cannot accept a connection of another rank of this host: ",
                   std::strerror(error),
                   "; it tries again until it can: close files, or raise the limit of open files "
                   "(ulimit -n)"));
}

void LocalAcceptor::send_challenge(GuardedFd socket) {
  if (!net::is_trusted_peer(socket.get())) {
    log::debug("refused a connection of another user's process");
    ::send(socket.get(), kOtherUser.data(), kOtherUser.size(), MSG_NOSIGNAL);
    return;
  }
  if (waiting_.size() >= kSpareRoom + members_.size()) waiting_.erase(waiting_.begin());
  PendingPeer peer{std::move(socket), fresh_nonce(), {}, {}};
  if (::send(peer.socket.get(), peer.mine.data(), peer.mine.size(), MSG_NOSIGNAL) < 0) return;
  waiting_.push_back(std::move(peer));
}

void LocalAcceptor::examine(size_t index) {
  PendingPeer peer = std::move(waiting_[index]);
  waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(index));
  auto packet = net::receive_packet(peer.socket.get(), "a local process");
  if (!packet.ok() || !*packet || (*packet)->fds.size() != 1) return;
  const auto application = Application::decode((*packet)->bytes);
  if (!application) return;
  const Digest expected =
      credentials_.prove("member", application->rank, rank_, peer.mine, application->nonce);
  if (!equal_in_constant_time(expected, application->proof) ||
      std::find(members_.begin(), members_.end(), application->rank) == members_.end() ||
      admitted_.contains(application->rank)) {
    log::warning(cat("a process that says it is rank ", application->rank,
                     " did not prove that it belongs to this job"));
    ::send(peer.socket.get(), kRefused.data(), kRefused.size(), MSG_NOSIGNAL);
    return;
  }
  peer.theirs = application->nonce;
  peer.heap = std::move((*packet)->fds[0]);
  admitted_.emplace(application->rank, std::move(peer));
}

Status LocalAcceptor::late(const std::vector<PeerRecord>& records) const {
  for (const int32_t member : members_) {
    if (!admitted_.contains(member)) {
      const std::string& host = records[static_cast<size_t>(member)].host;
      return deadline_exceeded(cat(rank_on_host(member, host), " did not connect to rank ", rank_,
                                   " there before the start timeout"));
    }
  }
  return internal_error("nobody is late");
}

}  // namespace hvd::collectives
