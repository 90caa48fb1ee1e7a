#include "collectives/mesh/local_rendezvous.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
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

constexpr size_t kFilesPerMessage = 200;  // the kernel takes 253
// Maximum number of ranks with shared heaps: every rank has a descriptor of every other rank's heap.
constexpr size_t kMostHeaps = 128;
size_t heaps_among(size_t ranks) { return ranks <= kMostHeaps ? ranks : 0; }

Status wait_for(int fd, short events, Deadline deadline, std::string_view whom) {
  pollfd entry{fd, events, 0};
  for (;;) {
    const int count = ::poll(&entry, 1, deadline.poll_timeout());
    if (count > 0) return {};
    if (count == 0) return deadline_exceeded(cat("gave up waiting for ", whom));
    if (errno != EINTR) return system_error("cannot wait for a socket", errno);
  }
}

Status send_message(int fd, ByteView bytes, const std::vector<int>& fds, Deadline deadline,
                    std::string_view whom) {
  for (;;) {
    HVD_ASSIGN_OR_RETURN(const bool sent, net::send_packet(fd, bytes, fds, whom));
    if (sent) return {};
    HVD_RETURN_IF_ERROR(wait_for(fd, POLLOUT, deadline, whom));
  }
}

Result<Bytes> receive_message(int fd, std::vector<UniqueFd>* fds, Deadline deadline,
                              std::string_view whom) {
  for (;;) {
    HVD_RETURN_IF_ERROR(wait_for(fd, POLLIN, deadline, whom));
    HVD_ASSIGN_OR_RETURN(auto packet, net::receive_packet(fd, whom));
    if (!packet) continue;
    if (packet->bytes.empty()) {
      return unavailable(cat(whom, " closed its socket during the local rendezvous"));
    }
    if (fds != nullptr) std::move(packet->fds.begin(), packet->fds.end(), std::back_inserter(*fds));
    return std::move(packet->bytes);
  }
}

UniqueFd open_process(int socket) {
  const auto peer = net::peer_credentials(socket);
  if (!peer || peer->pid == ::getpid()) return {};
  // Linux 6.5 and later create this pidfd at connect time; it also works across process id
  // namespaces. Older kernels need a lookup by number.
  constexpr int kPeerPidfd = 77;
  int process = -1;
  socklen_t size = sizeof process;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &process, &size) == 0) {
    return UniqueFd(process);
  }
  if (peer->pid <= 0) return {};
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, peer->pid, 0)));
}

std::string name_of_rank(const std::vector<PeerRecord>& records, int32_t rank) {
  return rank_on_host(rank, records[static_cast<size_t>(rank)].host);
}

Status send_files(int socket, const std::vector<UniqueFd>& files, Deadline deadline,
                  std::string_view whom) {
  for (size_t first = 0; first < files.size(); first += kFilesPerMessage) {
    std::vector<int> fds;
    for (size_t i = first; i < std::min(files.size(), first + kFilesPerMessage); ++i) {
      fds.push_back(files[i].get());
    }
    HVD_RETURN_IF_ERROR(send_message(socket, as_bytes("files"), fds, deadline, whom));
  }
  return {};
}

Result<std::vector<UniqueFd>> receive_files(int socket, size_t count, Deadline deadline,
                                            std::string_view whom) {
  std::vector<UniqueFd> files;
  while (files.size() < count) {
    HVD_ASSIGN_OR_RETURN(const Bytes message, receive_message(socket, &files, deadline, whom));
  }
  if (files.size() != count) {
    return invalid_argument(cat(whom, " counts other ranks on this host"));
  }
  return files;
}

// Returns a descriptor to send: a copy of the heap's descriptor, or /dev/null without a heap.
Result<UniqueFd> copy_of(int heap) {
  UniqueFd copy(heap >= 0 ? ::fcntl(heap, F_DUPFD_CLOEXEC, 0)
                          : ::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!copy) return system_error("cannot open a descriptor for the local rendezvous", errno);
  return copy;
}

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

Result<RendezvousSocket> RendezvousSocket::open() {
  RendezvousSocket rendezvous;
  std::array<std::byte, 12> random;
  fill_random(random);
  rendezvous.name = cat("horovod-", to_hex(random));
  HVD_ASSIGN_OR_RETURN(rendezvous.listener, net::listen_for_packets(rendezvous.name));
  return rendezvous;
}

Result<std::unique_ptr<LeaderConnection>> find_leader(const std::vector<PeerRecord>& records,
                                                      int32_t rank) {
  const PeerRecord& mine = records[static_cast<size_t>(rank)];
  for (int32_t candidate = 0; candidate < rank; ++candidate) {
    const PeerRecord& record = records[static_cast<size_t>(candidate)];
    if (record.machine != mine.machine) continue;
    auto socket = net::connect_for_packets(record.rendezvous_socket);
    if (socket.ok() && !net::is_trusted_peer(socket->get())) {
      return permission_denied(cat("another user's process answers in place of ",
                                   name_of_rank(records, candidate),
                                   "; start all ranks of a host as one user"));
    }
    if (socket.ok())
      return std::make_unique<LeaderConnection>(
          LeaderConnection{candidate, GuardedFd(std::move(*socket))});
    // The rank bound the name before it published it. If no process answers, the record is from another
    // machine with an equal identity (a virtual machine cloned while running).
    if (socket.error().code() != Code::kNotFound) {
      return socket.error().with_context(
          cat("cannot connect to ", name_of_rank(records, candidate)));
    }
  }
  return std::unique_ptr<LeaderConnection>();
}

Result<LocalRendezvous> receive_members(const RendezvousSocket& rendezvous,
                                        const Credentials& credentials,
                                        const std::vector<PeerRecord>& records, int32_t rank,
                                        const std::vector<int32_t>& members,
                                        std::vector<int32_t> leaders, size_t sub_region_size,
                                        int heap, MemoryMap& map, Deadline deadline,
                                        Interruption* interruption) {
  const size_t count = members.size() + 1;
  HVD_ASSIGN_OR_RETURN(std::unique_ptr<SharedRegion> region,
                       SharedRegion::create(count, sub_region_size, map));
  std::vector<UniqueFd> doorbells;
  for (size_t i = 0; i < count; ++i) {
    doorbells.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!doorbells.back()) return system_error("cannot create an eventfd", errno);
  }
  LocalAcceptor acceptor(rendezvous.listener.get(), credentials, rank, members, interruption);
  HVD_ASSIGN_OR_RETURN(auto peers, acceptor.receive(records, deadline));
  const Bytes table = encode_leaders(leaders);
  LocalRendezvous result;
  if (heaps_among(count) > 0) {
    HVD_ASSIGN_OR_RETURN(UniqueFd own, copy_of(heap));
    result.heaps.push_back(std::move(own));
    for (auto& [member, peer] : peers) result.heaps.push_back(std::move(peer.heap));
  }
  for (auto& [member, peer] : peers) {
    const Digest proof = credentials.prove("leader", rank, member, peer.mine, peer.theirs, table);
    const Bytes welcome = ByteWriter().put_raw(proof).put_raw(table).take();
    const int socket = peer.socket.get();
    const std::string whom = name_of_rank(records, member);
    HVD_RETURN_IF_ERROR(send_message(socket, welcome, {region->fd()}, deadline, whom));
    HVD_RETURN_IF_ERROR(send_files(socket, doorbells, deadline, whom));
    HVD_RETURN_IF_ERROR(send_files(socket, result.heaps, deadline, whom));
    UniqueFd process = open_process(peer.socket.get());
    result.watched.push_back({member, std::move(peer.socket), std::move(process)});
  }
  result.links = std::make_unique<HostLinks>(std::move(region), std::move(doorbells), 0);
  result.leaders = std::move(leaders);
  return result;
}

Result<LocalRendezvous> join_leader(LeaderConnection connection, const Credentials& credentials,
                                    const std::vector<PeerRecord>& records, int32_t rank, int heap,
                                    MemoryMap& map, Deadline deadline) {
  const std::string whom = name_of_rank(records, connection.leader);
  const int socket = connection.socket.get();
  HVD_ASSIGN_OR_RETURN(const Bytes challenge, receive_message(socket, nullptr, deadline, whom));
  if (as_text(challenge) == kOtherUser) {
    return permission_denied(cat(whom, " refused rank ", rank,
                                 ": it runs as another user; start all ranks of a host as one "
                                 "user"));
  }
  Application application;
  Nonce theirs;
  if (challenge.size() != theirs.size()) return invalid_argument(cat(whom, " sent no challenge"));
  std::copy(challenge.begin(), challenge.end(), theirs.begin());
  application.rank = rank;
  application.nonce = fresh_nonce();
  application.proof =
      credentials.prove("member", rank, connection.leader, theirs, application.nonce);
  HVD_ASSIGN_OR_RETURN(const UniqueFd own_heap, copy_of(heap));
  HVD_RETURN_IF_ERROR(send_message(socket, application.encode(), {own_heap.get()}, deadline, whom));

  std::vector<UniqueFd> files;
  HVD_ASSIGN_OR_RETURN(const Bytes welcome, receive_message(socket, &files, deadline, whom));
  if (as_text(welcome) == kRefused) {
    return permission_denied(
        cat(whom, " refused rank ", rank, ": it does not hold the secret of that job"));
  }
  Digest proof;
  ByteReader in(welcome);
  const ByteView sent_proof = in.get_raw(proof.size());
  const ByteView table = in.get_raw(in.left());
  proof = credentials.prove("leader", connection.leader, rank, theirs, application.nonce, table);
  if (in.failed() || files.size() != 1 || !equal_in_constant_time(proof, sent_proof)) {
    return permission_denied(cat(whom, " did not prove that it belongs to this job"));
  }
  LocalRendezvous result;
  HVD_ASSIGN_OR_RETURN(result.leaders, decode_leaders(table, records.size()));
  HVD_ASSIGN_OR_RETURN(std::unique_ptr<SharedRegion> region,
                       SharedRegion::open(std::move(files[0]), map));
  const size_t count = region->rank_count();
  HVD_ASSIGN_OR_RETURN(auto doorbells, receive_files(socket, count, deadline, whom));
  HVD_ASSIGN_OR_RETURN(result.heaps, receive_files(socket, heaps_among(count), deadline, whom));
  // The table defines the indices of the host's ranks, so it must have as many ranks of this host as the region.
  const auto& leaders = result.leaders;
  const auto led = std::count(leaders.begin(), leaders.end(), connection.leader);
  if (leaders[static_cast<size_t>(rank)] != connection.leader ||
      static_cast<size_t>(led) != count) {
    return invalid_argument(cat(whom, " counts other ranks on this host"));
  }
  const auto local =
      static_cast<size_t>(std::count(leaders.begin(), leaders.begin() + rank, connection.leader));
  result.links = std::make_unique<HostLinks>(std::move(region), std::move(doorbells), local);
  UniqueFd process = open_process(socket);
  result.watched.push_back({connection.leader, std::move(connection.socket), std::move(process)});
  return result;
}

Bytes encode_leaders(const std::vector<int32_t>& leaders) {
  ByteWriter out;
  out.put(static_cast<uint32_t>(leaders.size()));
  for (const int32_t leader : leaders) out.put(leader);
  return out.take();
}

Result<std::vector<int32_t>> decode_leaders(ByteView bytes, size_t size) {
  ByteReader in(bytes);
  std::vector<int32_t> leaders(in.get_count(sizeof(int32_t)));
  for (size_t rank = 0; rank < leaders.size(); ++rank) {
    leaders[rank] = in.get<int32_t>();
    const auto leader = static_cast<size_t>(leaders[rank]);
    // A leader is the lowest rank of its host, so it is its own leader.
    if (in.failed() || leader > rank || leaders[leader] != leaders[rank]) {
      return invalid_argument("a table of hosts makes no sense");
    }
  }
  HVD_RETURN_IF_ERROR(in.finish("a table of hosts"));
  if (leaders.size() != size) return invalid_argument("a table of hosts has another size");
  return leaders;
}

}  // namespace hvd::collectives
