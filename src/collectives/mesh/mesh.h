// One rank's links to all other ranks: shared memory inside the host, TCP between hosts. Carries
// control messages, stores the host of each rank, and detects lost ranks. One failure ends all
// links. The built-in controller owns the mesh and shares it with the built-in backend. One caller at a
// time; never waits after establish(), except briefly in fail() and in the destructor.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/wait/interruption.h"
#include "collectives/mesh/handshake.h"
#include "collectives/mesh/host_links.h"
#include "collectives/mesh/key_value_store.h"
#include "collectives/mesh/local_rendezvous.h"
#include "collectives/mesh/peer_stream.h"
#include "collectives/mesh/remote_links.h"
#include "collectives/shm/shared_heap.h"
#include "net/endpoint.h"
#include "net/event_loop.h"
#include "net/interfaces.h"

namespace hvd::collectives {

struct MeshOptions {
  int32_t rank = 0;
  int32_t size = 1;
  std::string host;  // the host's name in error messages
  Credentials credentials;
  std::string site;                   // PeerRecord::site
  net::PortRange ports{};             // ports on which this rank may listen for other hosts
  net::InterfaceChoice interfaces{};  // interfaces on which other hosts may reach this rank
  LinkTimes times{};                  // `dial` applies to a mesh without a deadline
  SharedHeap* heap = nullptr;         // memory that this process shares; may be null
  Interruption* interruption =
      nullptr;  // interrupts the wait for the ranks of this host; may be null
  // Only tests set this member, to simulate several hosts in one process.
  MemoryMap* memory_map = nullptr;
  std::string machine;
  bool with_loopback = false;
};

class Mesh {
 public:
  // Exchanges records with all ranks by the store, and connects to the ranks of this host. Links to ranks on other
  // hosts open on first use.
  static Result<std::unique_ptr<Mesh>> establish(MeshOptions options, KeyValueStore& store,
                                                 Deadline deadline);
  // Announces to the other ranks that this rank leaves without an error, unless the mesh has
  // failed.
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int32_t rank() const { return options_.rank; }
  int32_t size() const { return options_.size; }
  // Returns the number of each rank's host. Hosts are numbered from 0, in the order of their lowest ranks.
  const std::vector<int32_t>& hosts() const { return hosts_; }
  int32_t leader_of(int32_t rank) const { return leaders_[static_cast<size_t>(rank)]; }
  // Returns a rank's index among the ranks of its host.
  size_t local_index_of(int32_t rank) const { return local_index_[static_cast<size_t>(rank)]; }
  // Returns, for example, "rank 3 on host b".
  std::string describe(int32_t rank) const;
  // Returns false in a forked child, which must not use the links.
  bool in_owner_process() const;

  // Messages between two ranks arrive in order, once and complete.
  Status send(int32_t rank, ByteView message) { return send(rank, message, {}); }
  // Sends two parts that arrive as one message.
  Status send(int32_t rank, ByteView first, ByteView second);
  using Receiver = std::function<void(int32_t from, ByteView message)>;
  Status poll(const Receiver& receiver, bool& progressed);
  // Moves bytes and detects failures, but delivers no messages. Returns true when any bytes moved.
  bool pump();

  // Returns a descriptor that is readable when the mesh may have work. A sleeping caller polls the
  // descriptor, and calls notice() when it is readable.
  int fd() const { return loop_.fd(); }
  void notice() { look_ = true; }
  // Returns whether the caller may block on fd(). Calls the backend's idle check (set_idle_check) last.
  bool before_sleep();
  void after_sleep();
  void set_idle_check(std::function<bool()> is_idle) { is_idle_ = std::move(is_idle); }

  // Returns the first failure; equal on all ranks where possible.
  const Status& failure() const { return failure_; }
  void fail(const Status& cause);
  // Returns whether a rank has left without an error; it then sends no further message.
  bool departed(int32_t rank) const;

  HostLinks& host_links() { return *host_; }
  // Return the shared heap of this process (null in a forked child), and the mapped heaps of the
  // ranks of this host (null if the host has too many ranks).
  SharedHeap* heap() const { return heap_; }
  PeerHeaps* peer_heaps() { return peer_heaps_.get(); }
  PeerStream& peer_stream(int32_t rank, uint64_t id) { return remote_->peer_stream(rank, id); }
  void close_peer_stream(PeerStream& peer_stream) { remote_->close_peer_stream(peer_stream); }
  // Closes the streams with these ids to all ranks, also streams that only the peer has used.
  void retire_peer_streams(std::span<const uint64_t> ids) { remote_->retire_peer_streams(ids); }

 private:
  Mesh(MeshOptions options, net::EventLoop loop);
  Status connect(KeyValueStore& store, Deadline deadline);
  std::string key(std::string_view what) const;
  Result<std::vector<Candidate>> own_addresses() const;
  Result<PeerRecord> own_record(const RendezvousSocket& rendezvous,
                                std::vector<Candidate> addresses) const;
  Status exchange_records(const PeerRecord& mine, KeyValueStore& store, Deadline deadline);
  Result<std::vector<int32_t>> ask_for_leaders(int32_t leader, KeyValueStore& store,
                                               Deadline deadline);
  Result<LocalRendezvous> rendezvous_on_host(const RendezvousSocket& rendezvous,
                                             KeyValueStore& store, Deadline deadline);
  void expect_neighbours();
  Status watch_host(std::vector<Watched> watched);
  void number_hosts();
  void lost(int32_t rank);
  void check();
  bool is_local(int32_t rank) const { return leader_of(rank) == leader_of(options_.rank); }

  MeshOptions options_;
  MemoryMap system_map_;
  int owner_;
  net::EventLoop loop_;
  std::vector<PeerRecord> records_;
  std::vector<int32_t> leaders_;
  std::vector<int32_t> hosts_;
  std::vector<size_t> local_index_;
  std::vector<int32_t> local_ranks_;
  std::unique_ptr<HostLinks> host_;
  SharedHeap* heap_ = nullptr;
  std::unique_ptr<PeerHeaps> peer_heaps_;
  std::unique_ptr<RemoteLinks> remote_;
  std::vector<Watched> watched_;
  std::function<bool()> is_idle_;
  Status failure_;
  bool look_ = false;
  uint32_t polls_ = 0;
};

// The built-in controller publishes a pointer to its SharedMesh under kMeshName, for the built-in backend of the same
// runtime.
using SharedMesh = std::shared_ptr<Mesh>;
constexpr const char* kMeshName = "hvd.collectives.mesh.v1";
// The name under which the runtime publishes the SharedHeap of its process.
constexpr const char* kHeapName = "hvd.collectives.heap.v1";
// The name under which the runtime publishes the Interruption of hvd_init, if it has one.
constexpr const char* kInterruptionName = "hvd.collectives.interruption.v1";

}  // namespace hvd::collectives
