#include "ops/engine.h"

namespace hvd::ops {

int Engine::run(const hvd_batch& batch, Done done, void* argument) {
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

bool Engine::poll() {
  if (running_ == 0) return false;
  bool moved = false;
  for (auto& [id, set] : sets_) moved |= advance(set);
  if (failed()) {
    fail_all();
    return true;
  }
  return moved;
}

// Starts what is not started, in order: every member does the same. Ends what is over, in order.
bool Engine::advance(Set& set) {
  if (failed() || set.entries.empty()) return false;
  const auto ready = set.team->is_ready();
  if (!ready.ok()) {
    failure_ = ready.error();
    return true;
  }
  if (!*ready) return false;
  bool moved = false;
  for (size_t i = 0; i < set.entries.size(); ++i) {
    Entry& entry = set.entries[i];
    if (entry.work != nullptr) continue;
    auto work = set.team->start(*entry.batch);
    if (!work.ok()) {
      failure_ = work.error();
      return true;
    }
    entry.work = *std::move(work);
    moved = true;
  }
  while (!set.entries.empty() && set.entries.front().work != nullptr) {
    const std::optional<Status> over = set.entries.front().work->poll();
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

void Engine::fail_all() {
  on_abort();
  // Done callbacks may run new batches, which fail at once.
  for (auto& [id, set] : sets_) {
    while (!set.entries.empty()) {
      Entry entry = std::move(set.entries.front());
      set.entries.pop_front();
      --running_;
      if (entry.work != nullptr) lost_.push_back(std::move(entry.work));
      entry.done(entry.argument, static_cast<int>(failure_.code()), failure_.message().c_str());
    }
  }
}

int Engine::new_set(int32_t id, std::vector<int32_t> members) {
  if (sets_.contains(id)) return id == 0 ? HVD_OK : HVD_ALREADY_EXISTS;
  auto team = make_team(id, std::move(members));
  if (!team.ok()) return static_cast<int>(team.error().code());
  sets_[id].team = *std::move(team);
  return HVD_OK;
}

int Engine::drop_set(int32_t id) {
  const auto found = sets_.find(id);
  if (found == sets_.end() || id == 0) return HVD_NOT_FOUND;
  if (!found->second.entries.empty()) return HVD_FAILED_PRECONDITION;
  on_drop(id);
  sets_.erase(found);
  return HVD_OK;
}

void Engine::abort(const Status& cause) {
  if (!failed()) failure_ = cause;
  fail_all();
}

}  // namespace hvd::ops
