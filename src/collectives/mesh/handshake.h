// The handshake on a TCP connection between two ranks: both name themselves and prove that they know
// the job's secret before they trust or send anything else. One object is one connection attempt, of
// the dialler or of the acceptor. RemoteLinks owns the attempts, keeps one of them, and calls them on
// the mesh's loop. Never waits.
//
//   dialler: hello              both ranks, which stream, nonce
//   acceptor: hello + proof
//   dialler: proof              sent on the one attempt that it chose
//   acceptor: one byte          the stream is open
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/result.h"
#include "base/secrets/secret.h"
#include "collectives/mesh/peer_stream.h"
#include "net/event_loop.h"

namespace hvd::collectives {

// A TCP address that a peer may try; `bytes` holds 4 or 16 bytes.
struct Candidate {
  std::string interface;
  Bytes bytes;
};

// The record that each rank publishes in the store before it has a link: its kernel, its network and its addresses.
struct PeerRecord {
  // These fields are equal on all ranks of a host and come first in the message: a common prefix of
  // the host's records is sent once.
  std::string host;     // for messages, never for decisions
  std::string machine;  // boot id "/" network namespace: equal when ranks may share memory
  // Identifier of the agent or server that started the rank; empty: unknown. Ranks with equal sites are on one
  // machine, and can share memory.
  std::string site;
  std::vector<Candidate> candidates;
  // These fields differ between ranks.
  int32_t rank = 0;
  std::string rendezvous_socket;  // name of the abstract Unix socket, without the leading zero
  uint32_t pid = 0;
  uint16_t port = 0;

  Bytes encode() const;
  static Result<PeerRecord> decode(ByteView bytes);
};

// Returns the leader of each rank, the lowest rank on its machine, if the records suffice. Returns
// nullopt if ranks that may share memory have different sites or lack a site.
std::optional<std::vector<int32_t>> known_leaders(const std::vector<PeerRecord>& records);

// Returns whether two ranks run on one kernel, possibly in different network namespaces.
bool shares_kernel(const PeerRecord& one, const PeerRecord& other);

using Nonce = std::array<std::byte, 32>;

// Makes the proofs that two ranks exchange when they open a link. A proof shows that its sender has the job's
// secret. It is valid for one job, generation, pair of ranks and pair of nonces. Pure.
struct Credentials {
  std::string job;
  int32_t generation = 0;
  Secret secret;
  bool encrypts = false;  // links between hosts carry encrypted records; equal on all ranks

  // Returns the proof of rank `from` for rank `to`, an HMAC-SHA256 with the job's secret. `role` prevents
  // a replay in the other direction. The proof also covers `payload`.
  Digest prove(std::string_view role, int32_t from, int32_t to, const Nonce& first,
               const Nonce& second, ByteView payload = {}) const;
  // Returns a key that both ends of a link derive from equal values, by HKDF-SHA256; `role` is the direction.
  Digest derive_key(std::string_view role, int32_t from, int32_t to, const Nonce& first,
                    const Nonce& second, ByteView payload = {}) const;
};

Nonce fresh_nonce();

struct Hello {
  int32_t from = -1;
  int32_t to = -1;
  uint64_t stream = 0;
  Digest job{};
  Nonce nonce{};

  static constexpr size_t kSize = 4 + 4 + 4 + 4 + 8 + 32 + 32;
  Bytes encode() const;
  static Result<Hello> decode(ByteView bytes);
};

class Handshake final {
 public:
  enum class State {
    kConnecting,
    kExpecting,  // waits for the peer's hello; a dialler also for the peer's proof
    kProven,     // dialler: may choose(); acceptor: may confirm()
    kWaiting,    // dialler: waits for the byte; acceptor: for the dialler's proof
    kOpen,       // the owner may take() the socket
    kFailed
  };

  static std::unique_ptr<Handshake> dial(net::EventLoop& loop, const Credentials& credentials,
                                         GuardedFd socket, int32_t from, int32_t to,
                                         uint64_t stream, std::string where);
  static std::unique_ptr<Handshake> accept(net::EventLoop& loop, const Credentials& credentials,
                                           GuardedFd socket, int32_t me, int32_t size);
  ~Handshake();
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  State state() const { return state_; }
  // Returns the cause of a failure, for example "10.77.0.2:4711: Connection refused".
  const std::string& reason() const { return reason_; }
  const std::string& where() const { return where_; }
  int32_t peer() const { return dials_ ? mine_.to : theirs_.from; }
  uint64_t stream() const { return mine_.stream; }
  Clock::time_point since() const { return since_; }

  void choose();
  void confirm();
  GuardedFd take();
  // Returns the keys of an open link's records; nullopt if the ranks do not encrypt.
  std::optional<LinkKeys> keys() const;

 private:
  Handshake(net::EventLoop& loop, const Credentials& credentials, GuardedFd socket, bool dials);
  void watch(uint32_t events);
  void on_ready();
  void fail(std::string reason);
  void put(ByteView bytes);
  // Reads up to `size` bytes; returns true when all of them have arrived.
  bool gather(size_t size);
  void advance();
  void take_hello_of_acceptor();
  void take_hello_of_dialler();
  void take_proof_of_dialler();

  net::EventLoop& loop_;
  const Credentials& credentials_;
  GuardedFd socket_;
  bool dials_;
  int32_t me_ = -1;
  int32_t size_ = 0;
  State state_ = State::kConnecting;
  std::string where_;
  std::string reason_;
  Hello mine_;
  Hello theirs_;
  Bytes received_;
  Clock::time_point since_ = Clock::now();
};

}  // namespace hvd::collectives
