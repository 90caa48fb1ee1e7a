// What the unsigned HTTP of the original's workers means (PROTOCOL.md, "Unsigned"): values by
// scope and key, apart from the job's own. A scope of which each member leaves by DELETE is
// emptied when all have left, so that they may meet there again. Pure; one thread at a time.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "rendezvous/store/state.h"

namespace hvd::rendezvous {

// How many members the scopes have that are emptied when all have left, where that is known.
using ScopeSizes = std::map<std::string, int, std::less<>>;

class UnsignedStore {
 public:
  explicit UnsignedStore(ScopeSizes sizes) : sizes_(std::move(sizes)) {}

  // The answer to one request; of `target` every byte counts. `value` is null for an empty body.
  struct Answer {
    int status = 200;
    ValuePtr value;
  };
  Answer answer(std::string_view method, std::string_view target, Bytes body);
  // Whether it answers this method at all.
  static bool knows(std::string_view method);

  size_t scope_count() const { return scopes_.size(); }

 private:
  struct Scope {
    std::map<std::string, ValuePtr, std::less<>> values;
    std::set<std::string, std::less<>> left;  // members that have left since the last rendezvous
    std::set<std::string, std::less<>>
        staying;  // of an earlier rendezvous, which have yet to leave it
  };

  void put(const std::string& name, std::string_view key, Bytes body);
  void remove(std::string_view name, std::string_view key);
  size_t members_of(std::string_view name, const Scope& scope) const;

  const ScopeSizes sizes_;
  std::map<std::string, Scope, std::less<>> scopes_;
};

}  // namespace hvd::rendezvous
