#include "ops/common/backend.h"

#include <algorithm>
#include <utility>

#include "base/plugin_record.h"
#include "ops/common/library_thread.h"

namespace hvd::ops {

int Backend::run(const hvd_batch& batch, Done done, void* argument) {
  Set* const set = sets_.find(batch.process_set);
  if (set == nullptr) return HVD_NOT_FOUND;
  if (failed()) {
    done(argument, static_cast<int>(failure_.code()), failure_.message().c_str());
    return HVD_OK;
  }
  sets_.push(
      *set,
      Entry{{&batch, done, argument}, nullptr, field_of(batch, &hvd_batch::on_stream) == nullptr});
  advance(*set);
  if (failed()) fail();
  return HVD_OK;
}

bool Backend::poll() {
  if (sets_.is_idle()) return false;
  bool moved = false;
  for (auto& [id, set] : sets_) moved |= advance(*set);
  if (failed()) {
    fail();
    return true;
  }
  return moved;
}

// Starts new batches and ends completed ones, both in the order that is equal on all members.
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
  moved |= note_streams(set);
  while (!set.entries.empty() && set.entries.front().running != nullptr) {
    const std::optional<Status> over = set.entries.front().running->poll();
    if (!over) return moved;
    if (!over->ok()) {
      failure_ = *over;
      return true;
    }
    moved = true;
    report_times(set.entries.front());
    sets_.finish(set, {});
  }
  return moved;
}

void Backend::report_times(const Entry& entry) {
  auto* const ran = field_of(*entry.batch, &hvd_batch::ran);
  const std::optional<DeviceTimes> times = entry.running->times();
  if (ran == nullptr || !times) return;
  ran(entry.argument, times->began.time_since_epoch().count(),
      times->ended.time_since_epoch().count());
}

bool Backend::note_streams(Set& set) {
  bool moved = false;
  for (Entry& entry : set.entries) {
    if (entry.is_on_stream) continue;
    void* const event = entry.running->event();
    if (event == nullptr) break;  // later batches reach the stream after this one
    entry.is_on_stream = moved = true;
    entry.batch->on_stream(entry.argument, event);
  }
  return moved;
}

// For batches on devices, only reports the failure: the runtime sends it to the other ranks, then aborts the batches.
void Backend::fail() {
  for (auto& [id, set] : sets_) {
    for (const Entry& entry : set->entries) {
      auto* const fails = field_of(*entry.batch, &hvd_batch::fails);
      if (fails == nullptr) continue;
      if (std::exchange(is_reported_, true)) return;
      return fails(entry.argument, static_cast<int>(failure_.code()), failure_.message().c_str());
    }
  }
  fail_all();
}

void Backend::fail_all() {
  // abort() blocks the progress thread, so all communicators share one time limit.
  for (auto& [id, set] : sets_) set->communicator->begin_abort();
  const Deadline until = LibraryThread::end_limit();
  for (auto& [id, set] : sets_) set->communicator->abort(until);
  on_abort();
  // Callbacks may submit new batches, which fail at once.
  for (auto& [id, set] : sets_) {
    while (!set->entries.empty()) {
      auto& running = set->entries.front().running;
      const bool in_use = running != nullptr && running->uses_tensors();
      if (running != nullptr) lost_.push_back(std::move(running));
      sets_.finish(*set, failure_, in_use ? HVD_TENSORS_IN_USE : 0);
    }
  }
}

int Backend::new_set(int32_t id, std::vector<int32_t> members) {
  if (sets_.find(id) != nullptr) return id == 0 ? HVD_OK : HVD_ALREADY_EXISTS;
  auto communicator = open_communicator(incarnations_.make(id, std::move(members)));
  if (!communicator.ok()) return static_cast<int>(communicator.error().code());
  auto set = std::make_unique<Set>();
  set->communicator = *std::move(communicator);
  sets_.add(id, std::move(set));
  return HVD_OK;
}

bool Backend::may_sleep() {
  return sets_.is_idle() || std::all_of(sets_.begin(), sets_.end(), [](const auto& one) {
           return one.second->communicator->wakes();
         });
}

void Backend::abort(const Status& cause) {
  if (!failed()) failure_ = cause;
  fail_all();
}

}  // namespace hvd::ops
