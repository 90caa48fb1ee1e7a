#include "collectives/mesh/handshake.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "base/text.h"
#include "net/tcp_transport.h"

namespace hvd::collectives {
namespace {

constexpr uint32_t kRecordMagic = 0x50445648;  // "HVDP"
constexpr uint32_t kRecordVersion = 2;

Bytes statement(const Credentials& credentials, std::string_view protocol, std::string_view role,
                int32_t from, int32_t to, const Nonce& first, const Nonce& second,
                ByteView payload) {
  ByteWriter out;
  out.put_text(protocol).put_text(role).put_text(credentials.job).put(credentials.generation);
  out.put(from).put(to).put_raw(first).put_raw(second).put_blob(payload);
  return out.take();
}

constexpr uint32_t kHandshakeMagic = 0x4c445648;  // "HVDL"
// Version of the protocol between ranks: runtimes with different versions do not connect.
constexpr uint32_t kHandshakeVersion = 3;
constexpr std::byte kConfirmed{'Y'};

Digest job_digest(const Credentials& credentials) {
  return sha256(ByteWriter().put_text(credentials.job).put(credentials.generation).view());
}

}  // namespace

Bytes PeerRecord::encode() const {
  ByteWriter out;
  out.put(kRecordMagic).put(kRecordVersion).put_text(host).put_text(machine).put_text(site);
  out.put(static_cast<uint32_t>(candidates.size()));
  for (const Candidate& candidate : candidates) {
    out.put_text(candidate.interface).put_blob(candidate.bytes);
  }
  out.put(rank).put_text(rendezvous_socket).put(pid).put(uint32_t{port});
  return out.take();
}

Result<PeerRecord> PeerRecord::decode(ByteView bytes) {
  ByteReader in(bytes);
  PeerRecord record;
  if (in.get<uint32_t>() != kRecordMagic || in.get<uint32_t>() != kRecordVersion) {
    return invalid_argument("a rank's address record is of another version");
  }
  record.host = in.get_text();
  record.machine = in.get_text();
  record.site = in.get_text();
  const uint32_t count = in.get_count(8);
  for (uint32_t i = 0; i < count; ++i) {
    Candidate candidate;
    candidate.interface = in.get_text();
    const ByteView address = in.get_blob();
    if (!in.failed() && address.size() != 4 && address.size() != 16) {
      return invalid_argument("a rank's address record has an address of a strange size");
    }
    candidate.bytes.assign(address.begin(), address.end());
    record.candidates.push_back(std::move(candidate));
  }
  record.rank = in.get<int32_t>();
  record.rendezvous_socket = in.get_text();
  record.pid = in.get<uint32_t>();
  record.port = static_cast<uint16_t>(in.get<uint32_t>());
  HVD_RETURN_IF_ERROR(in.finish("a rank's address record"));
  return record;
}

std::optional<std::vector<int32_t>> known_leaders(const std::vector<PeerRecord>& records) {
  std::map<std::string_view, int32_t> lowest;  // lowest rank by machine
  std::vector<int32_t> leaders;
  for (size_t rank = 0; rank < records.size(); ++rank) {
    const PeerRecord& record = records[rank];
    const auto [found, is_new] = lowest.emplace(record.machine, static_cast<int32_t>(rank));
    const PeerRecord& leader = records[static_cast<size_t>(found->second)];
    if (!is_new && (record.site.empty() || record.site != leader.site)) return std::nullopt;
    leaders.push_back(found->second);
  }
  return leaders;
}

bool shares_kernel(const PeerRecord& one, const PeerRecord& other) {
  const auto boot_id = [](const PeerRecord& record) {
    return std::string_view(record.machine).substr(0, record.machine.find('/'));
  };
  return boot_id(one) == boot_id(other);
}

Digest Credentials::prove(std::string_view role, int32_t from, int32_t to, const Nonce& first,
                          const Nonce& second, ByteView payload) const {
  return secret.sign(statement(*this, "horovod link 1", role, from, to, first, second, payload));
}

Digest Credentials::derive_key(std::string_view role, int32_t from, int32_t to, const Nonce& first,
                               const Nonce& second, ByteView payload) const {
  return secret.derive(
      as_text(statement(*this, "horovod link key 1", role, from, to, first, second, payload)));
}

Nonce fresh_nonce() {
  Nonce nonce;
  fill_random(nonce);
  return nonce;
}

Bytes Hello::encode() const {
  ByteWriter out;
  out.put(kHandshakeMagic)
      .put(kHandshakeVersion)
      .put(from)
      .put(to)
      .put(stream)
      .put_raw(job)
      .put_raw(nonce);
  return out.take();
}

Result<Hello> Hello::decode(ByteView bytes) {
  ByteReader in(bytes);
  if (in.get<uint32_t>() != kHandshakeMagic)
    return invalid_argument("it does not speak our protocol");
  if (in.get<uint32_t>() != kHandshakeVersion) return invalid_argument("it speaks another version");
  Hello hello;
  hello.from = in.get<int32_t>();
  hello.to = in.get<int32_t>();
  hello.stream = in.get<uint64_t>();
  const ByteView job = in.get_raw(hello.job.size());
  const ByteView nonce = in.get_raw(hello.nonce.size());
  HVD_RETURN_IF_ERROR(in.finish("a handshake"));
  std::copy(job.begin(), job.end(), hello.job.begin());
  std::copy(nonce.begin(), nonce.end(), hello.nonce.begin());
  return hello;
}

Handshake::Handshake(net::EventLoop& loop, const Credentials& credentials, GuardedFd socket,
                     bool dials)
    : loop_(loop), credentials_(credentials), socket_(std::move(socket)), dials_(dials) {
  mine_.job = job_digest(credentials);
  mine_.nonce = fresh_nonce();
}

std::unique_ptr<Handshake> Handshake::dial(net::EventLoop& loop, const Credentials& credentials,
                                           GuardedFd socket, int32_t from, int32_t to,
                                           uint64_t stream, std::string where) {
  std::unique_ptr<Handshake> handshake(new Handshake(loop, credentials, std::move(socket), true));
  handshake->mine_.from = from;
  handshake->mine_.to = to;
  handshake->mine_.stream = stream;
  handshake->where_ = std::move(where);
  handshake->watch(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  return handshake;
}

std::unique_ptr<Handshake> Handshake::accept(net::EventLoop& loop, const Credentials& credentials,
                                             GuardedFd socket, int32_t me, int32_t size) {
  std::unique_ptr<Handshake> handshake(new Handshake(loop, credentials, std::move(socket), false));
  handshake->me_ = me;
  handshake->size_ = size;
  handshake->state_ = State::kExpecting;
  handshake->watch(EPOLLIN | EPOLLRDHUP | EPOLLET);
  return handshake;
}

void Handshake::watch(uint32_t events) {
  if (loop_.watch(socket_.get(), events, [this](uint32_t) { on_ready(); })) return;
  fail(system_error("cannot watch the connection", errno).message());
}

Handshake::~Handshake() { (void)take(); }

GuardedFd Handshake::take() {
  if (socket_) loop_.unwatch(socket_.get());
  return std::move(socket_);
}

void Handshake::fail(std::string reason) {
  if (state_ == State::kFailed) return;
  state_ = State::kFailed;
  reason_ = where_.empty() ? std::move(reason) : cat(where_, ": ", reason);
  (void)take();
}

void Handshake::put(ByteView bytes) {
  // The bytes always fit into the socket buffer: nothing else has been sent on this connection.
  const ssize_t size =
      ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (size != static_cast<ssize_t>(bytes.size())) {
    fail(system_error("it broke off", size < 0 ? errno : EPIPE).message());
  }
}

bool Handshake::gather(size_t size) {
  while (received_.size() < size) {
    std::byte buffer[256];
    // Reads only the bytes of the handshake: the following bytes belong to the stream.
    const ssize_t got = ::recv(socket_.get(), buffer,
                               std::min(sizeof buffer, size - received_.size()), MSG_DONTWAIT);
    if (got > 0) {
      received_.insert(received_.end(), buffer, buffer + got);
    } else if (got == 0) {
      fail("it closed the connection during the handshake");
      return false;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return false;
    } else if (errno != EINTR) {
      fail(system_error("it broke off", errno).message());
      return false;
    }
  }
  return true;
}

void Handshake::on_ready() {
  State before;
  do {
    before = state_;
    advance();
  } while (state_ != before && state_ != State::kFailed);
}

void Handshake::advance() {
  switch (state_) {
    case State::kConnecting: {
      const int outcome = net::connect_outcome(socket_.get());
      sockaddr_storage peer;
      socklen_t size = sizeof peer;
      if (outcome != 0) return fail(system_error("cannot connect", outcome).message());
      if (::getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&peer), &size) != 0) return;
      state_ = State::kExpecting;
      return put(mine_.encode());
    }
    case State::kExpecting:
      return dials_ ? take_hello_of_acceptor() : take_hello_of_dialler();
    case State::kWaiting:
      if (!dials_) return take_proof_of_dialler();
      if (!gather(1)) return;
      if (received_[0] != kConfirmed) return fail("it did not confirm the link");
      state_ = State::kOpen;
      return;
    case State::kProven: {
      // No bytes are expected; only the connection's end matters.
      std::byte probe;
      const ssize_t got = ::recv(socket_.get(), &probe, 1, MSG_DONTWAIT | MSG_PEEK);
      if (got == 0) fail("it closed the connection during the handshake");
      return;
    }
    case State::kOpen:
    case State::kFailed:
      return;
  }
}

void Handshake::take_hello_of_acceptor() {
  if (!gather(Hello::kSize + sizeof(Digest))) return;
  const auto hello = Hello::decode(ByteView(received_).first(Hello::kSize));
  if (!hello.ok()) return fail(hello.status().message());
  theirs_ = hello.value();
  if (theirs_.from != mine_.to || theirs_.to != mine_.from || theirs_.stream != mine_.stream ||
      theirs_.job != mine_.job) {
    return fail("somebody else answers there");
  }
  const Digest proof = credentials_.prove("acceptor", mine_.to, mine_.from, mine_.nonce,
                                          theirs_.nonce, mine_.encode());
  if (!equal_in_constant_time(proof, ByteView(received_).last(proof.size()))) {
    return fail("it did not prove that it belongs to this job");
  }
  received_.clear();
  state_ = State::kProven;
}

void Handshake::take_hello_of_dialler() {
  if (!gather(Hello::kSize)) return;
  const auto hello = Hello::decode(received_);
  if (!hello.ok()) return fail(hello.status().message());
  theirs_ = hello.value();
  if (theirs_.to != me_ || theirs_.from == me_ || theirs_.from < 0 || theirs_.from >= size_ ||
      theirs_.job != mine_.job) {
    return fail("it looks for somebody else");
  }
  received_.clear();
  mine_.from = me_;
  mine_.to = theirs_.from;
  mine_.stream = theirs_.stream;
  const Digest proof = credentials_.prove("acceptor", me_, theirs_.from, theirs_.nonce, mine_.nonce,
                                          theirs_.encode());
  state_ = State::kWaiting;
  put(ByteWriter().put_raw(mine_.encode()).put_raw(proof).view());
}

void Handshake::take_proof_of_dialler() {
  const Digest proof = credentials_.prove("dialler", theirs_.from, me_, theirs_.nonce, mine_.nonce,
                                          theirs_.encode());
  if (!gather(proof.size())) return;
  if (!equal_in_constant_time(proof, received_)) {
    return fail(cat("a process that says it is rank ", theirs_.from,
                    " did not prove that it belongs to this job"));
  }
  received_.clear();
  state_ = State::kProven;
}

void Handshake::choose() {
  const Digest proof = credentials_.prove("dialler", mine_.from, mine_.to, mine_.nonce,
                                          theirs_.nonce, mine_.encode());
  state_ = State::kWaiting;
  put(proof);
}

void Handshake::confirm() {
  state_ = State::kOpen;
  put({&kConfirmed, 1});
}

std::optional<LinkKeys> Handshake::keys() const {
  if (!credentials_.encrypts) return std::nullopt;
  const Hello& dialler = dials_ ? mine_ : theirs_;
  const Hello& acceptor = dials_ ? theirs_ : mine_;
  const auto key_of = [&](std::string_view sender) {
    return credentials_.derive_key(sender, dialler.from, dialler.to, dialler.nonce, acceptor.nonce,
                                   dialler.encode());
  };
  const Digest from_dialler = key_of("dialler"), from_acceptor = key_of("acceptor");
  return dials_ ? LinkKeys{from_dialler, from_acceptor} : LinkKeys{from_acceptor, from_dialler};
}

}  // namespace hvd::collectives
