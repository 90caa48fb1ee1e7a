// The local rendezvous of the ranks of one host. Over an abstract Unix socket, with a challenge in
// both directions, the lowest rank (the leader) distributes the shared memory and the doorbells. Only a
// rank that can connect to this socket is treated as a rank of this host. Mesh calls these functions, once in
// hvd_init, and owns their result. The functions wait up to the deadline.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/wait/interruption.h"
#include "collectives/mesh/handshake.h"
#include "collectives/mesh/host_links.h"

namespace hvd::collectives {

// A local rank whose end the mesh detects: the leader watches all members, and a member its leader.
struct Watched {
  int32_t rank;
  GuardedFd socket;  // reports a hang-up when no process holds the other end
  UniqueFd process;  // a pidfd; closed if the kernel lacks pidfds, and for this process
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

// Encodes the leader's message to its members: the leader of each rank, which defines all groups.
Bytes encode_leaders(const std::vector<int32_t>& leaders);
Result<std::vector<int32_t>> decode_leaders(ByteView bytes, size_t size);

}  // namespace hvd::collectives
