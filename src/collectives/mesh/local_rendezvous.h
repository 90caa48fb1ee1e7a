// The local rendezvous of the ranks of one host. Over an abstract Unix socket, with a challenge in both directions, the
// lowest rank (the leader) distributes the shared memory and the doorbells. Only a rank that can connect to this socket
// is treated as a rank of this host. The functions block until the deadline at the latest.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
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
#include "collectives/mesh/host_links.h"

namespace hvd::collectives {

// A member's message to the leader.
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

// The leader's side of the local rendezvous: accepts connections of this user's processes, admits a process that proves
// to be a rank of this host, and refuses any other. Limits the number and the age of pending connections, so that no
// process can block the leader or use up its descriptors. Owns the sockets of the peers until it returns them.
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

// A local rank whose end the mesh detects: the leader watches all members, and a member its leader.
struct Watched {
  int32_t rank;
  GuardedFd socket;  // reports a hang-up when no process holds the other end
  UniqueFd process;  // a pidfd; unset if the kernel has none, or if the rank is in this process
};

struct LocalRendezvous {
  std::unique_ptr<HostLinks> links;
  std::vector<int32_t> leaders;  // the lowest rank on each rank's host
  std::vector<Watched> watched;
  std::vector<UniqueFd> heaps;  // by local rank; no elements if the host has too many ranks
};

// The socket, under a random abstract name, on which a leader accepts its members.
struct RendezvousSocket {
  UniqueFd listener;
  std::string name;
  static Result<RendezvousSocket> open();
};

// A member's connection to its leader.
struct LeaderConnection {
  int32_t leader = -1;
  GuardedFd socket;
};

// Connects to the lowest rank of this host; returns null when this rank is the lowest.
Result<std::unique_ptr<LeaderConnection>> find_leader(const std::vector<PeerRecord>& records,
                                                      int32_t rank);

// The leader's side: accepts `members` (ascending ranks without the leader). `heap` is the file of
// this rank's shared heap; the leader passes the files of all heaps to all members. `interruption`
// ends the wait.
Result<LocalRendezvous> receive_members(const RendezvousSocket& rendezvous,
                                        const Credentials& credentials,
                                        const std::vector<PeerRecord>& records, int32_t rank,
                                        const std::vector<int32_t>& members,
                                        std::vector<int32_t> leaders, size_t sub_region_size,
                                        int heap, MemoryMap& map, Deadline deadline,
                                        Interruption* interruption = nullptr);

// A member's side: proves its identity and receives the region, the doorbells and the heaps.
Result<LocalRendezvous> join_leader(LeaderConnection connection, const Credentials& credentials,
                                    const std::vector<PeerRecord>& records, int32_t rank, int heap,
                                    MemoryMap& map, Deadline deadline);

// Encodes the leader's message to its members: the leader of each rank of the job.
Bytes encode_leaders(const std::vector<int32_t>& leaders);
Result<std::vector<int32_t>> decode_leaders(ByteView bytes, size_t size);

}  // namespace hvd::collectives
