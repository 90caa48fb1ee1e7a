#include "rendezvous/store/change_log.h"

#include <utility>

#include "base/text.h"

namespace hvd::rendezvous {
namespace {

constexpr size_t kRemembered = 4096;
constexpr size_t kRememberedBytes = 1024 * 1024;

}  // namespace

void ChangeLog::add(std::string_view key, bool removed) {
  ++revision_;
  log_.push_back({std::string(key), removed});
  log_bytes_ += key.size();
  while (log_.size() > kRemembered || log_bytes_ > kRememberedBytes) {
    log_bytes_ -= log_.front().key.size();
    log_.pop_front();
  }
  if (watchers_.empty()) return;
  std::vector<OnChange> called;
  for (auto watcher = watchers_.begin(); watcher != watchers_.end();) {
    if (key.starts_with(watcher->second.prefix)) {
      called.push_back(std::move(watcher->second.on_change));
      watcher = watchers_.erase(watcher);
    } else {
      ++watcher;
    }
  }
  const Changes changes{revision_, {log_.back()}};
  for (const OnChange& on_change : called) on_change(changes);
}

Result<Changes> ChangeLog::after(uint64_t revision, std::string_view prefix) const {
  if (revision > revision_) {
    return failed_precondition(cat("revision ", revision, " does not exist yet: the store is at ",
                                   revision_, "; list the keys and watch from there"));
  }
  const uint64_t wanted = revision_ - revision;
  if (wanted > log_.size()) {
    return failed_precondition(cat("the changes after revision ", revision,
                                   " are forgotten; list the keys and watch from ", revision_));
  }
  Changes found{revision_, {}};
  for (size_t i = log_.size() - wanted; i < log_.size(); ++i) {
    if (log_[i].key.starts_with(prefix)) found.changes.push_back(log_[i]);
  }
  return found;
}

uint64_t ChangeLog::wait(std::string_view prefix, OnChange on_change) {
  const uint64_t ticket = next_ticket_++;
  watchers_.emplace(ticket, Watcher{std::string(prefix), std::move(on_change)});
  return ticket;
}

}  // namespace hvd::rendezvous
