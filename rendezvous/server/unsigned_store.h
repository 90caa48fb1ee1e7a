// The store behind the unsigned HTTP of Horovod's own workers (PROTOCOL.md, "Unsigned"). Owns their
// values, by scope and key, separately from the job's signed store. A scope with members is emptied
// after each member has left it by DELETE; the members can then use it for the next rendezvous. No I/O,
// one thread at a time. A session calls it on the server's loop.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "rendezvous/store/state.h"

namespace hvd::rendezvous {

// Number of members of each scope, as far as it is known in advance.
using ScopeSizes = std::map<std::string, int, std::less<>>;

class UnsignedStore {
 public:
  explicit UnsignedStore(ScopeSizes sizes) : sizes_(std::move(sizes)) {}

  // The answer to one request. `target` is not decoded. `value` is null for an empty body.
  struct Answer {
    int status = 200;
    ValuePtr value;
  };
  Answer answer(std::string_view method, std::string_view target, Bytes body);
  // Whether the store supports this method.
  static bool knows(std::string_view method);

  size_t scope_count() const { return scopes_.size(); }

 private:
  struct Scope {
    std::map<std::string, ValuePtr, std::less<>> values;
    std::set<std::string, std::less<>> left;  // members that have left since the last rendezvous
    // members of the earlier rendezvous that have yet to leave it
    std::set<std::string, std::less<>> staying;
  };

  void put(const std::string& name, std::string_view key, Bytes body);
  void remove(std::string_view name, std::string_view key);
  size_t members_of(std::string_view name, const Scope& scope) const;

  const ScopeSizes sizes_;
  std::map<std::string, Scope, std::less<>> scopes_;
};

}  // namespace hvd::rendezvous
