#include "collectives/mesh/mesh.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "base/lost_peer.h"
#include "base/machine_identity.h"
#include "base/text.h"
#include "collectives/shm/shared_region.h"

namespace hvd::collectives {
namespace {

// The number of polls of shared memory between two polls of the descriptors, unless notice() was
// called: a system call costs as much as a small allreduce.
constexpr uint32_t kPollsPerLook = 256;
// Maximum number of times that one dispatch checks the loop again for ready descriptors.
constexpr int kRounds = 64;

// Returns the size of the largest sub-region of any group on a host with this many ranks.
size_t largest_sub_region(size_t ranks) {
  size_t largest = 0;
  for (size_t count = 1; count <= ranks; ++count) {
    largest = std::max(largest, SubRegion::size_for(count, SubRegion::chunk_for(count)));
  }
  return largest;
}

}  // namespace

Mesh::Mesh(MeshOptions options, net::EventLoop loop)
    : options_(std::move(options)), owner_(::getpid()), loop_(std::move(loop)) {}

Result<std::unique_ptr<Mesh>> Mesh::establish(MeshOptions options, KeyValueStore& store,
                                              Deadline deadline) {
  HVD_ASSIGN_OR_RETURN(net::EventLoop loop, net::EventLoop::open());
  std::unique_ptr<Mesh> mesh(new Mesh(std::move(options), std::move(loop)));
  const Status connected = mesh->connect(store, deadline);
  if (!connected.ok()) return connected;
  return mesh;
}

Mesh::~Mesh() {
  if (!in_owner_process()) {
    // In a forked child all resources belong to the parent: the memory is not mapped, and the fork
    // has closed the descriptors of the links.
    static_cast<void>(host_.release());
    static_cast<void>(peer_heaps_.release());
    static_cast<void>(remote_.release());
    static_cast<void>(std::make_unique<std::vector<Watched>>(std::move(watched_)).release());
    return;
  }
  if (host_ && failure_.ok()) {
    // Wait a short time until the last messages fit into the mailboxes.
    const Deadline deadline = Deadline::after_seconds(1);
    while (!deadline.passed() && failure_.ok() && (host_->has_output() || remote_->has_output())) {
      host_->fall_asleep();
      pollfd entry{fd(), POLLIN, 0};
      if (host_->has_output() || remote_->has_output()) ::poll(&entry, 1, deadline.poll_timeout());
      host_->wake_up();
      look_ = true;
      pump();
      host_->flush();
    }
    remote_->depart();
    host_->depart();
  }
  for (const Watched& entry : watched_) {
    loop_.unwatch(entry.socket.get());
    if (entry.process) loop_.unwatch(entry.process.get());
  }
  if (host_) loop_.unwatch(host_->doorbell());
}

std::string Mesh::describe(int32_t rank) const {
  return rank_on_host(rank, records_[static_cast<size_t>(rank)].host);
}

bool Mesh::in_owner_process() const { return ::getpid() == owner_; }

Status Mesh::send(int32_t rank, ByteView first, ByteView second) {
  if (!failure_.ok()) return failure_;
  if (rank < 0 || rank >= options_.size) {
    return invalid_argument(cat("there is no rank ", rank, " among ", options_.size));
  }
  if (!is_local(rank)) return remote_->send(rank, first, second);
  if (departed(rank)) return aborted(cat(describe(rank), " has shut down"));
  if (second.empty())
    host_->send(local_index_of(rank), first);
  else
    host_->send(local_index_of(rank), ByteWriter().put_raw(first).put_raw(second).view());
  return {};
}

Status Mesh::poll(const Receiver& receiver, bool& progressed) {
  if (!failure_.ok()) return failure_;
  bool moved =
      host_->poll([&](size_t from, ByteView message) { receiver(local_ranks_[from], message); });
  if (remote_->has_messages()) moved |= remote_->poll(&receiver);
  if (look_ || remote_->in_use() || ++polls_ % kPollsPerLook == 0) {
    look_ = false;
    moved |= loop_.dispatch(kRounds);
    moved |= remote_->poll(&receiver);
  }
  check();
  progressed |= moved;
  return failure_;
}

bool Mesh::pump() {
  if (!failure_.ok()) return false;
  bool moved = false;
  if (look_ || remote_->in_use() || ++polls_ % kPollsPerLook == 0) {
    look_ = false;
    moved |= loop_.dispatch(kRounds);
    moved |= remote_->poll(nullptr);
  }
  check();
  return moved || !failure_.ok();
}

void Mesh::check() {
  if (!failure_.ok()) return;
  if (!remote_->failure().ok()) return fail(remote_->failure());
  const Status failed = host_->failure();
  if (!failed.ok()) fail(failed);
}

void Mesh::fail(const Status& cause) {
  if (!failure_.ok()) return;
  failure_ = host_->fail(cause);
  // A peer may have sent this number, and callers use it as an index.
  if (failure_.lost_rank() >= options_.size) failure_ = failure_.with_lost_rank(-1);
  remote_->abort(failure_);
}

void Mesh::lost(int32_t rank) {
  for (const Watched& entry : watched_) {
    if (entry.rank != rank) continue;
    loop_.unwatch(entry.socket.get());
    if (entry.process) loop_.unwatch(entry.process.get());
  }
  if (!departed(rank)) {
    fail(lost_peer(rank, records_[static_cast<size_t>(rank)].host, "its process ended"));
  };
}

bool Mesh::departed(int32_t rank) const {
  return is_local(rank) ? host_->departed(local_index_of(rank)) : remote_->departed(rank);
}

bool Mesh::before_sleep() {
  // After a failure no messages arrive, and the rank may sleep.
  if (!failure_.ok()) return true;
  host_->fall_asleep();
  const bool busy = look_ || host_->has_messages() || remote_->has_messages() ||
                    host_->has_failed() || (is_idle_ && !is_idle_());
  if (busy || !failure_.ok()) {
    host_->wake_up();
    return false;
  }
  return true;
}

void Mesh::after_sleep() { host_->wake_up(); }

std::string Mesh::key(std::string_view what) const {
  return cat("mesh/", options_.credentials.generation, "/", what);
}

// Returns the addresses at which other hosts may reach this rank.
Result<std::vector<Candidate>> Mesh::own_addresses() const {
  HVD_ASSIGN_OR_RETURN(const auto addresses, net::interface_addresses(options_.with_loopback));
  std::vector<Candidate> chosen;
  for (const auto& address : addresses) {
    if (!options_.interfaces.allows(address.interface, address.bytes)) continue;
    chosen.push_back({address.interface, address.bytes});
  }
  return chosen;
}

Result<PeerRecord> Mesh::own_record(const RendezvousSocket& rendezvous,
                                    std::vector<Candidate> addresses) const {
  PeerRecord mine;
  mine.rank = options_.rank;
  mine.host = options_.host;
  HVD_ASSIGN_OR_RETURN(mine.machine, machine_identity());
  mine.machine += options_.machine;
  mine.site = options_.site;
  mine.rendezvous_socket = rendezvous.name;
  mine.pid = static_cast<uint32_t>(::getpid());
  mine.port = remote_->port();
  mine.candidates = std::move(addresses);
  return mine;
}

Status Mesh::exchange_records(const PeerRecord& mine, KeyValueStore& store, Deadline deadline) {
  const Bytes record = mine.encode();
  records_.resize(static_cast<size_t>(options_.size));
  if (options_.size == 1) {
    records_[0] = mine;
    return {};
  }
  const auto exchange = [&](const std::vector<int32_t>& wanted, Deadline until) {
    return store.exchange(key("rank"), options_.rank, options_.size, record, wanted, until);
  };
  const auto all = exchange({}, deadline);
  if (!all.ok() && all.error().code() == Code::kDeadlineExceeded) {
    constexpr char kUndone[] =
        "connected to the others within the start timeout, which HOROVOD_START_TIMEOUT may raise";
    return late_ranks(options_.rank, options_.size, kUndone, [&](int32_t other) {
      return exchange({other}, Deadline::after_seconds(kLookAgainSeconds)).ok();
    });
  }
  if (!all.ok()) return all.error();
  if (all->size() != records_.size()) {
    return invalid_argument(cat("the job's store has the records of ", all->size(),
                                " ranks, where ", records_.size(), " were expected"));
  }
  for (size_t rank = 0; rank < records_.size(); ++rank) {
    HVD_ASSIGN_OR_RETURN(records_[rank], PeerRecord::decode((*all)[rank]));
    if (records_[rank].rank == static_cast<int32_t>(rank)) continue;
    return invalid_argument(
        cat("the address record of rank ", rank, " names rank ", records_[rank].rank));
  }
  return {};
}

// Returns the leader of each rank if the records do not suffice: each rank publishes the leader that it reached,
// and leaders read all of them. A member receives the table from its leader later; for a member, this function
// returns a table in which every rank is its own leader.
Result<std::vector<int32_t>> Mesh::ask_for_leaders(int32_t leader, KeyValueStore& store,
                                                   Deadline deadline) {
  std::vector<int32_t> leaders(records_.size());
  std::iota(leaders.begin(), leaders.end(), 0);
  const bool leads = leader == options_.rank;
  const std::vector<int32_t> wanted = leads ? leaders : std::vector{options_.rank};
  HVD_ASSIGN_OR_RETURN(const auto all,
                       store.exchange(key("leader"), options_.rank, options_.size,
                                      ByteWriter().put(leader).view(), wanted, deadline));
  if (!leads) return leaders;
  for (size_t rank = 0; rank < std::min(all.size(), leaders.size()); ++rank) {
    leaders[rank] = ByteReader(all[rank]).get<int32_t>();
  }
  // Check the published leaders, as members check the table.
  return decode_leaders(encode_leaders(leaders), leaders.size());
}

// Runs the local rendezvous: a rank is on this host if its record matches and the rank answers.
Result<LocalRendezvous> Mesh::rendezvous_on_host(const RendezvousSocket& rendezvous,
                                                 KeyValueStore& store, Deadline deadline) {
  MemoryMap& map = options_.memory_map != nullptr ? *options_.memory_map : system_map_;
  HVD_ASSIGN_OR_RETURN(auto connection, find_leader(records_, options_.rank));
  const int32_t leader = connection ? connection->leader : options_.rank;
  auto known = known_leaders(records_);
  if (!known) {
    HVD_ASSIGN_OR_RETURN(known, ask_for_leaders(leader, store, deadline));
  } else if ((*known)[static_cast<size_t>(options_.rank)] != leader) {
    return unavailable(cat(describe((*known)[static_cast<size_t>(options_.rank)]),
                           " cannot be reached: its process has ended"));
  }
  std::vector<int32_t> leaders = *std::move(known);
  std::vector<int32_t> members;
  for (size_t rank = 0; rank < leaders.size(); ++rank) {
    const bool is_self = static_cast<int32_t>(rank) == options_.rank;
    if (!is_self && leaders[rank] == options_.rank) members.push_back(static_cast<int32_t>(rank));
  }
  // A forked child shares no memory: its heap belongs to its parent.
  if (options_.heap != nullptr && options_.heap->file().ok()) heap_ = options_.heap;
  const int heap = heap_ != nullptr ? heap_->file().value() : -1;
  if (connection) {
    return join_leader(std::move(*connection), options_.credentials, records_, options_.rank, heap,
                       map, deadline);
  }
  return receive_members(rendezvous, options_.credentials, records_, options_.rank, members,
                         std::move(leaders), largest_sub_region(members.size() + 1), heap, map,
                         deadline, options_.interruption);
}

// Expects links to a leader's neighbours in a binomial tree: without groups, no other links are used.
void Mesh::expect_neighbours() {
  if (leader_of(options_.rank) != options_.rank) return;
  std::vector<int32_t> leaders;
  for (size_t rank = 0; rank < leaders_.size(); ++rank) {
    if (leaders_[rank] == static_cast<int32_t>(rank)) leaders.push_back(leaders_[rank]);
  }
  const auto own = static_cast<size_t>(hosts_[static_cast<size_t>(options_.rank)]);
  if (own != 0) remote_->expect(leaders[own & (own - 1)]);
  for (size_t bit = 1; own + bit < leaders.size() && (own & bit) == 0; bit <<= 1) {
    remote_->expect(leaders[own + bit]);
  }
}

Status Mesh::connect(KeyValueStore& store, Deadline deadline) {
  HVD_ASSIGN_OR_RETURN(const RendezvousSocket rendezvous, RendezvousSocket::open());
  HVD_ASSIGN_OR_RETURN(std::vector<Candidate> chosen, own_addresses());
  std::vector<Bytes> addresses;
  addresses.reserve(chosen.size());
  for (const Candidate& candidate : chosen) addresses.push_back(candidate.bytes);
  HVD_ASSIGN_OR_RETURN(remote_, RemoteLinks::open(loop_, options_.credentials, options_.rank,
                                                  addresses, options_.ports));
  HVD_ASSIGN_OR_RETURN(const PeerRecord mine, own_record(rendezvous, std::move(chosen)));
  HVD_RETURN_IF_ERROR(exchange_records(mine, store, deadline));
  HVD_ASSIGN_OR_RETURN(LocalRendezvous result, rendezvous_on_host(rendezvous, store, deadline));
  leaders_ = std::move(result.leaders);
  host_ = std::move(result.links);
  MemoryMap& map = options_.memory_map != nullptr ? *options_.memory_map : system_map_;
  if (!result.heaps.empty())
    peer_heaps_ = std::make_unique<PeerHeaps>(std::move(result.heaps), map);
  number_hosts();
  HVD_RETURN_IF_ERROR(watch_host(std::move(result.watched)));
  if (local_ranks_.size() == records_.size()) {
    remote_->close_listener();
    return {};
  }
  LinkTimes times = options_.times;
  if (!deadline.is_never()) times.dial = std::max(1.0, deadline.seconds_left());
  HVD_RETURN_IF_ERROR(remote_->start(records_, leaders_, times));
  expect_neighbours();
  return {};
}

void Mesh::number_hosts() {
  std::vector<size_t> seen(leaders_.size(), 0);
  std::vector<int32_t> numbers(leaders_.size(), 0);
  int32_t next = 0;
  for (size_t rank = 0; rank < leaders_.size(); ++rank) {
    const auto leader = static_cast<size_t>(leaders_[rank]);
    if (leader == rank) numbers[rank] = next++;
    hosts_.push_back(numbers[leader]);
    local_index_.push_back(seen[leader]++);
    if (leaders_[rank] == leader_of(options_.rank)) {
      local_ranks_.push_back(static_cast<int32_t>(rank));
    }
  }
}

Status Mesh::watch_host(std::vector<Watched> watched) {
  const auto watch = [this](int fd, uint32_t events, net::EventLoop::Callback callback) -> Status {
    if (loop_.watch(fd, events, std::move(callback))) return {};
    return system_error("cannot watch the ranks of this host", errno);
  };
  HVD_RETURN_IF_ERROR(
      watch(host_->doorbell(), EPOLLIN, [this](uint32_t) { host_->silence_doorbell(); }));
  watched_ = std::move(watched);
  for (const Watched& entry : watched_) {
    const auto end = [this, rank = entry.rank](uint32_t) { lost(rank); };
    HVD_RETURN_IF_ERROR(watch(entry.socket.get(), EPOLLIN | EPOLLRDHUP, end));
    if (entry.process) HVD_RETURN_IF_ERROR(watch(entry.process.get(), EPOLLIN, end));
  }
  return {};
}

}  // namespace hvd::collectives
