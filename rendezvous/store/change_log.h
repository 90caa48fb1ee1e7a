// The log of changed keys of a store, in order, and the clients that wait for the next change below a
// prefix. Keeps a bounded number of changes. No I/O. StoreState owns and calls the ChangeLog, on
// one thread at a time. Callbacks run inside `add` and must not call back in.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::rendezvous {

// Keys below a prefix that were set or removed, in the order of the changes, up to a revision of the store.
struct Changes {
  struct Change {
    std::string key;
    bool removed = false;
    bool operator==(const Change&) const = default;
  };
  uint64_t revision = 0;
  std::vector<Change> changes;
};

class ChangeLog {
 public:
  using OnChange = std::function<void(const Changes&)>;

  // Begins at this revision, as if all earlier changes were forgotten.
  explicit ChangeLog(uint64_t revision = 0) : revision_(revision) {}

  uint64_t revision() const { return revision_; }
  void add(std::string_view key, bool removed);
  // Returns the changes below the prefix after a revision, possibly none. Returns an error if the log has
  // forgotten some of these changes, or if the revision is higher than revision().
  Result<Changes> after(uint64_t revision, std::string_view prefix) const;
  // Calls on_change once, at the next change below the prefix.
  uint64_t wait(std::string_view prefix, OnChange on_change);
  // Ends a wait. Does nothing if on_change was called.
  void withdraw(uint64_t ticket) { watchers_.erase(ticket); }
  size_t watcher_count() const { return watchers_.size(); }

 private:
  struct Watcher {
    std::string prefix;
    OnChange on_change;
  };

  uint64_t revision_;
  std::deque<Changes::Change> log_;  // the last change has the number revision_
  size_t log_bytes_ = 0;             // bytes of the keys in log_
  std::map<uint64_t, Watcher> watchers_;
  uint64_t next_ticket_ = 1;
};

}  // namespace hvd::rendezvous
