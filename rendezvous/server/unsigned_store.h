// The store for the unsigned HTTP of Horovod's own workers (PROTOCOL.md, "Unsigned"). Owns their values, by scope
// and key, separately from the job's signed store, and limits their memory. A scope with members is emptied after
// all members have left it by DELETE. The members can then use it for the next rendezvous. No I/O, one thread at a
// time.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "rendezvous/store/state.h"

namespace hvd::rendezvous {

// The number of members of each scope, if known in advance.
using ScopeSizes = std::map<std::string, int, std::less<>>;

// Each worker stores about 140 bytes for each other worker.
struct UnsignedLimits {
  size_t value_bytes = size_t{16} << 20;
  // Limit for all values that are stored, arriving or being sent, with their keys. For more than 1,024
  // workers, the limit grows with the number of pairs of workers.
  size_t total_bytes = size_t{256} << 20;
};

class UnsignedStore {
 public:
  explicit UnsignedStore(ScopeSizes sizes, UnsignedLimits limits = {});

  // A reservation from total_bytes; its last owner frees it.
  using Room = std::shared_ptr<const void>;
  // Reserves memory for an announced body of this size. Null if the total is used up; the body must
  // not be larger than limits().value_bytes.
  Room take_room(size_t bytes);
  const UnsignedLimits& limits() const { return limits_; }

  // The reply to one request. `target` is not decoded. `value` is null for an empty body.
  struct Answer {
    int status = 200;
    ValuePtr value;
  };
  // 413 and 507: a PUT exceeds a limit.
  Answer answer(std::string_view method, std::string_view target, Bytes body);
  static bool knows(std::string_view method);

  size_t scope_count() const { return scopes_.size(); }
  size_t taken_bytes() const { return *taken_; }

 private:
  struct Scope {
    std::map<std::string, ValuePtr, std::less<>> values;
    std::set<std::string, std::less<>> left;  // members that have left since the last rendezvous
    // members of the earlier rendezvous that have yet to leave it
    std::map<std::string, Room, std::less<>> staying;
  };

  int put(const std::string& name, std::string_view key, Bytes body);
  Room take(size_t bytes);
  void remove(std::string_view name, std::string_view key);
  size_t members_of(std::string_view name, const Scope& scope) const;

  const ScopeSizes sizes_;
  UnsignedLimits limits_;
  const std::shared_ptr<size_t> taken_ =
      std::make_shared<size_t>(0);  // values may outlive this object
  std::map<std::string, Scope, std::less<>> scopes_;
};

}  // namespace hvd::rendezvous
