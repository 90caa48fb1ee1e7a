#include "ops/cpu/cpu_backend.h"

#include <numeric>

#include "base/text.h"

namespace hvd::ops {

using collectives::Group;

CpuBackend::CpuBackend(collectives::SharedMesh mesh) : mesh_(std::move(mesh)) {
  std::vector<int32_t> everyone(static_cast<size_t>(mesh_->size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  new_set(0, std::move(everyone));
  mesh_->set_idle_check([this] { return is_idle(); });
}

CpuBackend::~CpuBackend() {
  mesh_->set_idle_check(nullptr);
  for (auto& [id, set] : sets_) set->flow.drop();
}

int CpuBackend::new_set(int32_t id, std::vector<int32_t> members) {
  if (sets_.contains(id)) return id == 0 ? HVD_OK : HVD_ALREADY_EXISTS;
  const uint32_t incarnation = incarnations_[{id, members}]++;
  auto set = std::make_unique<Set>();
  set->group = std::make_unique<Group>(*mesh_, id, std::move(members), incarnation);
  sets_.emplace(id, std::move(set));
  return HVD_OK;
}

int CpuBackend::drop_set(int32_t id) {
  const auto found = sets_.find(id);
  if (found == sets_.end() || id == 0) return HVD_NOT_FOUND;
  if (!found->second->entries.empty()) return HVD_FAILED_PRECONDITION;
  sets_.erase(found);
  return HVD_OK;
}

int CpuBackend::run(const hvd_batch& batch, Done done, void* argument) {
  const auto found = sets_.find(batch.process_set);
  if (found == sets_.end()) return HVD_NOT_FOUND;
  if (!mesh_->failure().ok()) {
    done(argument, HVD_ABORTED, mesh_->failure().message().c_str());
    return HVD_OK;
  }
  Set& set = *found->second;
  set.entries.push_back({&batch, done, argument});
  ++running_;
  if (set.entries.size() == 1) start_next(set);
  return HVD_OK;
}

int CpuBackend::reduce_wholes(const hvd_batch& batch, const void* const* inputs) {
  const auto found = sets_.find(batch.process_set);
  if (found == sets_.end()) return HVD_NOT_FOUND;
  collectives::reduce_one_shot(batch, {inputs, found->second->group->size()});
  return HVD_OK;
}

const char* CpuBackend::activity(const hvd_batch& batch) const {
  const auto set = sets_.find(batch.process_set);
  const bool across = set != sets_.end() && set->second->group->host_count() > 1;
  switch (batch.op) {
    case HVD_ALLREDUCE:
      return across ? "TCP_ALLREDUCE" : "SHM_ALLREDUCE";
    case HVD_ALLGATHER:
      return across ? "TCP_ALLGATHER" : "SHM_ALLGATHER";
    case HVD_BROADCAST:
      return across ? "TCP_BCAST" : "SHM_BCAST";
    case HVD_ALLTOALL:
      return across ? "TCP_ALLTOALL" : "SHM_ALLTOALL";
    case HVD_REDUCESCATTER:
      return across ? "TCP_REDUCESCATTER" : "SHM_REDUCESCATTER";
    default:
      return nullptr;
  }
}

// Goes on until a batch has to wait. Whoever is told that one is done may submit the next at once.
void CpuBackend::start_next(Set& set) {
  while (!set.entries.empty() && !set.flow.running()) {
    set.flow.start(collectives::run(set.flow, *set.group, *set.entries.front().batch));
    if (set.flow.running()) return;
    finish(set, {});
  }
}

void CpuBackend::finish(Set& set, const Status& status) {
  const Entry entry = set.entries.front();
  set.entries.pop_front();
  --running_;
  entry.done(entry.argument, static_cast<int>(status.code()),
             status.ok() ? nullptr : status.message().c_str());
}

bool CpuBackend::poll() {
  if (running_ == 0) return false;
  bool moved = mesh_->pump();
  moved |= advance();
  if (mesh_->failure().ok()) return moved;
  // What a lost rank has left behind complete can still be finished; the rest cannot.
  while (advance()) {
  }
  fail_all();
  return true;
}

bool CpuBackend::advance() {
  bool moved = false;
  for (auto& [id, set] : sets_) {
    if (set->entries.empty()) continue;
    if (set->flow.poll()) {
      moved = true;
      if (!set->flow.running()) {
        finish(*set, {});
        start_next(*set);
      }
    } else if (mesh_->failure().ok()) {
      check_hopeless(*set);
    }
  }
  return moved;
}

// A rank that has left in good order posts nothing more; whatever waits for it waits for ever.
void CpuBackend::check_hopeless(Set& set) {
  const int rank = set.flow.condition()->waits_for();
  if (rank < 0 || !mesh_->departed(rank) || set.flow.ready()) return;
  mesh_->fail(aborted(cat(mesh_->describe(rank), " has shut down")));
}

void CpuBackend::fail_all() {
  // Done callbacks may run new batches, which fail at once.
  for (auto& [id, set] : sets_) {
    set->flow.drop();
    while (!set->entries.empty()) finish(*set, mesh_->failure());
  }
}

bool CpuBackend::is_idle() {
  for (auto& [id, set] : sets_) {
    if (!set->entries.empty() && set->flow.ready()) return false;
  }
  return mesh_->failure().ok() || running_ == 0;
}

}  // namespace hvd::ops
