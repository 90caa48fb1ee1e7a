#include "collectives/algorithms/group.h"

#include <algorithm>

#include "collectives/algorithms/inter_host_allreduce.h"
#include "collectives/algorithms/schedule.h"

namespace hvd::collectives {
namespace {

uint64_t key_of(int32_t id, uint32_t incarnation, const std::vector<int32_t>& members) {
  ByteWriter out;
  out.put_text("group").put(id).put(incarnation);
  for (const int32_t member : members) out.put(member);
  const Digest digest = sha256(out.view());
  const auto key = ByteReader(digest).get<uint64_t>();
  // The key must not be zero: zero marks an entry without a key, and the stream of control messages.
  return key == 0 ? 1 : key;
}

// Each stream after the first has its own key.
uint64_t stream_key(uint64_t key, size_t stream) {
  const uint64_t own = key ^ (stream * 0x9e3779b97f4a7c15);
  return own == 0 ? 1 : own;
}

}  // namespace

void ConcurrentTransfers::send(PeerStream& peer_stream, const std::byte* data, size_t size) {
  // The const_cast is safe: only a receive writes through this pointer.
  if (size > 0) transfers_.push_back({&peer_stream, const_cast<std::byte*>(data), size, true});
}

void ConcurrentTransfers::receive(PeerStream& peer_stream, std::byte* data, size_t size) {
  if (size > 0) transfers_.push_back({&peer_stream, data, size, false});
}

bool ConcurrentTransfers::move(Transfer& transfer) {
  const size_t moved = transfer.sends
                           ? transfer.peer_stream->write_some({transfer.data, transfer.left})
                           : transfer.peer_stream->read_some({transfer.data, transfer.left});
  transfer.data += moved;
  transfer.left -= moved;
  return transfer.left == 0;
}

bool ConcurrentTransfers::ready() {
  while (done_ < transfers_.size() && transfers_[done_].left == 0) ++done_;
  stuck_.clear();
  for (size_t i = done_; i < transfers_.size(); ++i) {
    Transfer& transfer = transfers_[i];
    const std::pair<PeerStream*, bool> direction(transfer.peer_stream, transfer.sends);
    if (transfer.left == 0 || std::find(stuck_.begin(), stuck_.end(), direction) != stuck_.end()) {
      continue;
    }
    if (!move(transfer)) stuck_.push_back(direction);
  }
  waits_for_ = -1;
  for (const auto& [peer_stream, sends] : stuck_) {
    if (peer_stream->ended()) waits_for_ = peer_stream->peer();
  }
  return stuck_.empty();
}

Group::Group(Mesh& mesh, int32_t id, std::vector<int32_t> members, uint32_t incarnation)
    : mesh_(mesh),
      members_(std::move(members)),
      key_(key_of(id, incarnation, members_)),
      host_of_(members_.size()) {
  std::vector<int32_t> leaders;
  size_t largest = 0;
  for (size_t i = 0; i < members_.size(); ++i) {
    const int32_t leader = mesh_.leader_of(members_[i]);
    const auto found = std::find(leaders.begin(), leaders.end(), leader);
    const auto host = static_cast<size_t>(found - leaders.begin());
    if (found == leaders.end()) {
      leaders.push_back(leader);
      hosts_.emplace_back();
    }
    if (members_[i] == mesh_.rank()) {
      index_ = i;
      host_index_ = host;
      local_index_ = hosts_[host].size();
    }
    host_of_[i] = host;
    hosts_[host].push_back(i);
    largest = std::max(largest, hosts_[host].size());
  }
  for (const size_t member : local_members()) {
    const size_t local = mesh_.local_index_of(members_[member]);
    if (member != index_) local_mask_[local / 64] |= uint64_t{1} << (local % 64);
  }
  // The chunk size is equal on all hosts, so that all ranks take the same steps.
  chunk_ = SubRegion::chunk_for(largest);
  peer_streams_.resize(hosts_.size());
  most_local_ = fewest_local_ = largest;
  for (const auto& host : hosts_) fewest_local_ = std::min(fewest_local_, host.size());
}

Group::~Group() {
  if (!mesh_.in_owner_process()) return;
  release_sub_region();
  for (const auto& streams : peer_streams_) {
    for (PeerStream* peer_stream : streams) {
      if (peer_stream != nullptr) mesh_.close_peer_stream(*peer_stream);
    }
  }
}

void Group::release_sub_region() {
  if (!sub_region_) return;
  mesh_.host_links().region().release_sub_region(sub_region_index_, sub_region_.base(),
                                                 sub_region_.size());
  sub_region_ = {};
}

void Group::retire() {
  release_sub_region();
  SharedRegion& region = mesh_.host_links().region();
  if (sub_region_index_ < 0 && refusal_.ok()) {
    // Call find_sub_region() also for its effect: if the sub-region was refused, the call of the last member
    // deletes the entry.
    const auto index = region.find_sub_region(key_);
    if (index.ok() && *index >= 0) region.release_sub_region(*index, nullptr, 0);
  }
  for (auto& streams : peer_streams_) streams.clear();
  if (hosts_.size() == 1) return;
  std::array<uint64_t, kMostStreams> keys;
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = stream_key(key_, i);
  mesh_.retire_peer_streams(keys);
}

size_t Group::local_index_of(size_t member) const {
  const auto& local = hosts_[host_index_];
  return static_cast<size_t>(std::lower_bound(local.begin(), local.end(), member) - local.begin());
}

PeerStream& Group::peer_stream(size_t host, size_t stream) {
  auto& streams = peer_streams_[host];
  if (streams.size() <= stream) streams.resize(stream + 1, nullptr);
  if (streams[stream] == nullptr) {
    const int32_t peer = members_[hosts_[host][local_index_]];
    streams[stream] = &mesh_.peer_stream(peer, stream_key(key_, stream));
  }
  return *streams[stream];
}

InterHostAllreduce& Group::inter_host() {
  if (!inter_host_) inter_host_ = std::make_unique<InterHostAllreduce>(*this);
  return *inter_host_;
}

bool Group::open_sub_region() {
  if (sub_region_ || !refusal_.ok()) return true;
  const bool may_refuse = may_be_refused && hosts_.size() == 1;
  SharedRegion& region = mesh_.host_links().region();
  const size_t size = SubRegion::size_for(local_count(), chunk_);
  if (is_leader() && !made_sub_region_) {
    made_sub_region_ = true;
    const Status made = region.make_sub_region(key_, size, static_cast<uint32_t>(local_count()));
    // Fail the mesh, unless the group accepts a refusal: all members then find the refusal in the entry.
    if (!made.ok() && !(may_refuse && made.code() == Code::kUnavailable)) {
      mesh_.fail(made.with_context(mesh_.describe(mesh_.rank())));
    }
    mesh_.host_links().wake(local_mask_);
  }
  const auto index = region.find_sub_region(key_);
  if (!index.ok() && may_refuse) {
    refusal_ = index.status();
    return true;
  }
  if (!index.ok()) {
    mesh_.fail(index.status());
    return false;
  }
  if (index.value() < 0) return false;
  auto memory = region.map_sub_region(index.value(), size);
  if (!memory.ok()) {
    mesh_.fail(memory.status().with_context(mesh_.describe(mesh_.rank())));
    return false;
  }
  sub_region_index_ = index.value();
  sub_region_ = SubRegion(memory.value(), local_count(), chunk_);
  return true;
}

void Group::wake_if_all(Condition& condition) {
  HostLinks& links = mesh_.host_links();
  if (links.anyone_sleeps(local_mask_) && condition.ready()) links.wake(local_mask_);
}

void Group::post(Counter counter, uint64_t value) {
  (sub_region_.flags(local_index_).*counter).store(value, std::memory_order_seq_cst);
  mesh_.host_links().wake(local_mask_);
}

void Group::post_all(Counter counter, uint64_t value) {
  (sub_region_.flags(local_index_).*counter).store(value, std::memory_order_seq_cst);
  AllReached all(*this, counter, value);
  wake_if_all(all);
}

void Group::post_small(uint64_t step) {
  sub_region_.small(local_index_, step).turn.store(step + 1, std::memory_order_seq_cst);
  SmallArrived all(*this, step);
  wake_if_all(all);
}

std::byte* Group::scratch(size_t size) {
  if (scratch_.size() < size) scratch_.resize(size);
  return scratch_.data();
}

bool AllReached::ready() {
  const SubRegion& sub_region = group_.sub_region();
  for (; next_ < group_.local_count(); ++next_) {
    if ((sub_region.flags(next_).*counter_).load(std::memory_order_seq_cst) < value_) return false;
  }
  next_ = 0;
  return true;
}

bool SmallArrived::ready() {
  const SubRegion& sub_region = group_.sub_region();
  for (; next_ < group_.local_count(); ++next_) {
    if (sub_region.small(next_, step_).turn.load(std::memory_order_seq_cst) != step_ + 1) {
      return false;
    }
  }
  next_ = 0;
  return true;
}

}  // namespace hvd::collectives
