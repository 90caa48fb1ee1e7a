// The leader's side of the local rendezvous: accepts connections of this user's processes, admits a
// process that proves to be a rank of this host, and refuses any other. Limits the number and the
// age of pending connections, so that no process can block the leader or use up its descriptors.
// Owns the sockets of the peers until it returns them. receive_members creates and calls
// LocalAcceptor, once in hvd_init; receive() waits up to the deadline.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/unique_fd.h"
#include "base/wait/interruption.h"
#include "collectives/mesh/handshake.h"

namespace hvd::collectives {

// A member's message: its rank, a nonce, its proof.
struct Application {
  int32_t rank = -1;
  Nonce nonce{};
  Digest proof{};

  Bytes encode() const;
  static std::optional<Application> decode(ByteView bytes);
};

// The replies that refuse a peer.
constexpr std::string_view kRefused = "refused";
constexpr std::string_view kOtherUser = "another user";

class LocalAcceptor {
 public:
  // `members`: the ranks to admit. `interruption` interrupts the wait with kAborted.
  LocalAcceptor(int listener, const Credentials& credentials, int32_t rank,
                const std::vector<int32_t>& members, Interruption* interruption = nullptr)
      : listener_(listener),
        credentials_(credentials),
        rank_(rank),
        members_(members),
        interruption_(interruption != nullptr ? interruption->fd() : -1) {}

  struct PendingPeer {
    GuardedFd socket;
    Nonce mine{};
    Nonce theirs{};
    UniqueFd heap;
    Clock::time_point since = Clock::now();
  };

  // Waits for all members; returns them by rank.
  Result<std::map<int32_t, PendingPeer>> receive(const std::vector<PeerRecord>& records,
                                                 Deadline deadline);

 private:
  GuardedFd accept_connection();
  void accept_peer();
  void send_challenge(GuardedFd socket);
  void examine(size_t index);
  void drop_silent();
  Deadline next(Deadline deadline) const;
  Status late(const std::vector<PeerRecord>& records) const;

  int listener_;
  const Credentials& credentials_;
  int32_t rank_;
  const std::vector<int32_t>& members_;
  const int interruption_;                  // becomes readable at the interruption; -1: none
  std::vector<PendingPeer> waiting_;        // the oldest first
  Deadline pause_end_ = Deadline::never();  // accepts nothing before this time; never: no pause
  bool has_warned_ = false;
  std::map<int32_t, PendingPeer> admitted_;
};

}  // namespace hvd::collectives
