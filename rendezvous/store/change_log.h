// Which keys of a store changed, in order, and who waits for the next change below a prefix.
// Remembers a bounded number of them. Pure; callbacks run inside `add` and must not call back in.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "rendezvous/store/store.h"

namespace hvd::rendezvous {

class ChangeLog {
 public:
  using OnChange = std::function<void(const Changes&)>;

  // Begins at the number of changes that it pretends to have forgotten.
  explicit ChangeLog(uint64_t revision = 0) : revision_(revision) {}

  uint64_t revision() const { return revision_; }
  void add(std::string_view key, bool removed);
  // Those below the prefix after a revision; none when there are none. An error when they are
  // forgotten, or when the revision is still to come.
  Result<Changes> after(uint64_t revision, std::string_view prefix) const;
  // Calls on_change once, at the next change below the prefix.
  uint64_t wait(std::string_view prefix, OnChange on_change);
  // Fine when it was served.
  void withdraw(uint64_t ticket) { watchers_.erase(ticket); }
  size_t watcher_count() const { return watchers_.size(); }

 private:
  struct Watcher {
    std::string prefix;
    OnChange on_change;
  };

  uint64_t revision_;
  std::deque<Changes::Change> log_;  // the last one is that of revision_
  size_t log_bytes_ = 0;             // of its keys
  std::map<uint64_t, Watcher> watchers_;
  uint64_t next_ticket_ = 1;
};

}  // namespace hvd::rendezvous
