#include "ops/common/backend.h"

namespace hvd::ops {

int Backend::run(const hvd_batch& batch, Done done, void* argument) {
  const auto found = sets_.find(batch.process_set);
  if (found == sets_.end()) return HVD_NOT_FOUND;
  if (failed()) {
    done(argument, static_cast<int>(failure_.code()), failure_.message().c_str());
    return HVD_OK;
  }
  found->second.entries.push_back({&batch, done, argument, nullptr});
  ++running_;
  advance(found->second);
  if (failed()) fail_all();
  return HVD_OK;
}

bool Backend::poll() {
  if (running_ == 0) return false;
  bool moved = false;
  for (auto& [id, set] : sets_) moved |= advance(set);
  if (failed()) {
    fail_all();
    return true;
  }
  return moved;
}

// Starts new batches in order, the same on every member. Ends batches that are over, in order.
bool Backend::advance(Set& set) {
  if (failed() || set.entries.empty()) return false;
  const auto ready = set.communicator->is_ready();
  if (!ready.ok()) {
    failure_ = ready.error();
    return true;
  }
  if (!*ready) return false;
  bool moved = false;
  for (size_t i = 0; i < set.entries.size(); ++i) {
    Entry& entry = set.entries[i];
    if (entry.running != nullptr) continue;
    auto running = set.communicator->start(*entry.batch);
    if (!running.ok()) {
      failure_ = running.error();
      return true;
    }
    entry.running = *std::move(running);
    moved = true;
  }
  while (!set.entries.empty() && set.entries.front().running != nullptr) {
    const std::optional<Status> over = set.entries.front().running->poll();
    if (!over) return moved;
    if (!over->ok()) {
      failure_ = *over;
      return true;
    }
    const Entry entry = std::move(set.entries.front());
    set.entries.pop_front();
    --running_;
    moved = true;
    entry.done(entry.argument, HVD_OK, nullptr);
  }
  return moved;
}

void Backend::fail_all() {
  on_abort();
  // Done callbacks may run new batches, which fail at once.
  for (auto& [id, set] : sets_) {
    while (!set.entries.empty()) {
      Entry entry = std::move(set.entries.front());
      set.entries.pop_front();
      --running_;
      if (entry.running != nullptr) lost_.push_back(std::move(entry.running));
      entry.done(entry.argument, static_cast<int>(failure_.code()), failure_.message().c_str());
    }
  }
}

int Backend::new_set(int32_t id, std::vector<int32_t> members) {
  if (sets_.contains(id)) return id == 0 ? HVD_OK : HVD_ALREADY_EXISTS;
  auto communicator = open_communicator(id, std::move(members));
  if (!communicator.ok()) return static_cast<int>(communicator.error().code());
  sets_[id].communicator = *std::move(communicator);
  return HVD_OK;
}

int Backend::drop_set(int32_t id) {
  const auto found = sets_.find(id);
  if (found == sets_.end() || id == 0) return HVD_NOT_FOUND;
  if (!found->second.entries.empty()) return HVD_FAILED_PRECONDITION;
  on_drop(id);
  sets_.erase(found);
  return HVD_OK;
}

void Backend::abort(const Status& cause) {
  if (!failed()) failure_ = cause;
  fail_all();
}

}  // namespace hvd::ops
