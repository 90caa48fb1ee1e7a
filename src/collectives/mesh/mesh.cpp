#include "collectives/mesh/mesh.h"

#include <poll.h>
#include <unistd.h>

#include "base/lost_peer.h"
#include "base/text.h"

namespace hvd::collectives {
namespace {

// How many polls of shared memory go by before the descriptors are looked at, when nothing said
// that there is anything: a system call costs as much as a small allreduce.
constexpr uint32_t kPollsPerLook = 256;

}  // namespace

Mesh::Mesh(MeshOptions options, net::DataLoop loop)
    : options_(std::move(options)), owner_(::getpid()), loop_(std::move(loop)) {}

Result<std::unique_ptr<Mesh>> Mesh::establish(MeshOptions options, KeyValueStore& store,
                                              Deadline deadline) {
  HVD_ASSIGN_OR_RETURN(net::DataLoop loop, net::DataLoop::open());
  std::unique_ptr<Mesh> mesh(new Mesh(std::move(options), std::move(loop)));
  const Status connected = mesh->connect(store, deadline);
  if (!connected.ok()) return connected;
  return mesh;
}

Mesh::~Mesh() {
  if (!in_owner_process()) {
    // All of it belongs to the parent: the memory is not mapped here, and the descriptors that
    // matter are closed already.
    static_cast<void>(host_.release());
    static_cast<void>(peer_heaps_.release());
    static_cast<void>(remote_.release());
    static_cast<void>(new std::vector<Watched>(std::move(watched_)));
    return;
  }
  if (host_ && failure_.ok()) {
    // The last messages get a moment to find room.
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
    loop_.remove(entry.socket.get());
    if (entry.process) loop_.remove(entry.process.get());
  }
  if (host_) loop_.remove(host_->doorbell());
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
  if (remote_->has_mail()) moved |= remote_->poll(&receiver);
  if (look_ || remote_->in_use() || ++polls_ % kPollsPerLook == 0) {
    look_ = false;
    moved |= loop_.dispatch();
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
    moved |= loop_.dispatch();
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
  remote_->abort(failure_.message());
}

void Mesh::lost(int32_t rank) {
  for (const Watched& entry : watched_) {
    if (entry.rank != rank) continue;
    loop_.remove(entry.socket.get());
    if (entry.process) loop_.remove(entry.process.get());
  }
  if (!departed(rank)) {
    fail(aborted(lost_peer(rank, records_[static_cast<size_t>(rank)].host, "its process ended")));
  };
}

bool Mesh::departed(int32_t rank) const {
  return is_local(rank) ? host_->departed(local_index_of(rank)) : remote_->departed(rank);
}

bool Mesh::before_sleep() {
  // Whoever has failed gets no more messages; it may as well rest.
  if (!failure_.ok()) return true;
  host_->fall_asleep();
  const bool busy = look_ || host_->has_mail() || remote_->has_mail() || host_->has_failed() ||
                    (is_idle_ && !is_idle_());
  if (busy || !failure_.ok()) {
    host_->wake_up();
    return false;
  }
  return true;
}

void Mesh::after_sleep() { host_->wake_up(); }

}  // namespace hvd::collectives
