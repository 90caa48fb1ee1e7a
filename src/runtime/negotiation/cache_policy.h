// Which names the root gives an id, and whose id it takes back. A name gets one when it is agreed
// on for the second time, so that names used once do not fill the cache. When the cache is full, a
// name takes the place of the one that was not used for longest, but only if that one has waited
// longer than the name itself had between its uses: so a step with more names than there is room
// for keeps as many as fit, instead of none. Pure but for its memory.
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

  // A name that has an id was agreed on again.
  void use(uint32_t id);
  // A name without an id was agreed on: the id it gets, or 0. *forgotten: the id that is taken
  // back for it, or 0.
  uint32_t admit(const std::string& text, uint32_t* forgotten);

 private:
  struct Slot {
    uint32_t id = 0;
    uint64_t used = 0;
    uint32_t older = 0;  // neighbours in the order of use; 0 is the ring's seam
    uint32_t newer = 0;
  };
  void unlink(uint32_t slot);
  void link_newest(uint32_t slot);
  uint64_t last_seen(const std::string& text);

  const uint32_t capacity_;
  uint64_t now_ = 0;                                // agreements so far
  std::vector<Slot> slots_;                         // by slot; the first is the seam
  std::unordered_map<std::string, uint64_t> seen_;  // names without an id: when
  std::deque<std::pair<std::string, uint64_t>> seen_order_;
};

}  // namespace hvd::runtime
