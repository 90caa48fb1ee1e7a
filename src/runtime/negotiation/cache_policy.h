// Decides which names get a cache id at the root, and which ids are revoked. A name gets an id at
// its second agreement, so that names used once do not fill the cache. If the cache is full, a name
// replaces the least recently used name, but only if that name has been unused for longer than the new
// name's interval between uses. Thus, if a step has more names than the cache has slots, some names
// keep their ids. Pure except for its memory.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/negotiation/response_cache.h"

namespace hvd::runtime {

class CachePolicy {
 public:
  explicit CachePolicy(uint32_t capacity);

  // Records that the ranks have agreed on a name with an id again.
  void use(uint32_t id);
  // Records that the ranks have agreed on a name without an id. Returns its new id, or 0. Sets
  // *forgotten to the id that is revoked for the new id, or 0.
  uint32_t admit(const std::string& text, uint32_t* forgotten);

 private:
  struct Slot {
    uint32_t id = 0;
    uint64_t used = 0;
    uint32_t older = 0;  // neighbours in the order of use; slot 0 is the list's head
    uint32_t newer = 0;
  };
  void unlink(uint32_t slot);
  void link_newest(uint32_t slot);
  uint64_t last_seen(const std::string& text);

  const uint32_t capacity_;
  uint64_t now_ = 0;                                // agreements so far
  std::vector<Slot> slots_;                         // by slot; the first is the list's head
  std::unordered_map<std::string, uint64_t> seen_;  // names without an id: last agreement
  std::deque<std::pair<std::string, uint64_t>> seen_order_;
};

}  // namespace hvd::runtime
