// Maps short cache ids to names on which all ranks of one process set have agreed before. Announcements and plans
// contain only the id of a repeated request. The cache is equal on every rank, because every rank changes it by the
// plans, in order; the root selects the names to keep (CachePolicy). ProcessSetState owns the cache. Lives on the
// progress thread.
//
// A rank may announce an id that has just been revoked. A rank that collects reports therefore
// keeps the id's meaning until all reporters have applied the plan that revoked it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/metrics/metrics.h"
#include "runtime/submission/tensor_table.h"
#include "runtime/wire/message.h"

namespace hvd::runtime {

struct CacheEntry {
  uint32_t id = 0;
  std::string text;
  Request request;             // this rank's request
  std::vector<RankRows> rows;  // rows of all ranks, ascending, if the operation has rows
  Name* name = nullptr;        // this rank's record of the name; null: never used here
  // State of the current negotiation (see Negotiator): the reporters that used the id, and the number of
  // reporters that sent the full name.
  std::vector<uint32_t> reporters;
  uint32_t full_reporters = 0;
};

class ResponseCache {
 public:
  // An id combines a slot, from 1, and a count of the slot's earlier uses, so an id has only one meaning.
  static constexpr uint32_t kSlots = OperationNames::kSlotsOfCache;
  static constexpr uint32_t slot_of(uint32_t id) { return id % kSlots; }
  static constexpr uint32_t id_after(uint32_t id) { return id + kSlots; }

  // Returns nullptr if no entry has this id.
  CacheEntry* find(uint32_t id) const {
    const uint32_t slot = slot_of(id);
    if (slot == 0 || slot > entries_.size()) return nullptr;
    CacheEntry* entry = entries_[slot - 1].get();
    return entry != nullptr && entry->id == id ? entry : nullptr;
  }
  CacheEntry* find(std::string_view text) const;
  // Returns the entry of a revoked id that ranks may still announce, or nullptr.
  const CacheEntry* find_forgotten(uint32_t id) const;
  // Assigns an id according to a plan. Returns nullptr if the id cannot be assigned.
  CacheEntry* put(uint32_t id, std::string_view text);
  // Revokes an id in plan number `plan`; keeps the id's meaning.
  void forget(CacheEntry* entry, uint64_t plan);
  // Drops the ids that plans below `plans` revoked, after all reporters of this rank have applied these plans.
  void bury(uint64_t plans);
  bool remembers_forgotten() const { return !forgotten_.empty(); }

  size_t size() const { return by_text_.size(); }
  template <typename Use>
  void each(Use&& use) {
    for (const auto& entry : entries_) {
      if (entry != nullptr) use(*entry);
    }
  }

 private:
  struct Forgotten {
    uint64_t plan;
    std::unique_ptr<CacheEntry> entry;
  };
  std::vector<std::unique_ptr<CacheEntry>> entries_;  // by slot
  std::unordered_map<std::string_view, CacheEntry*> by_text_;
  std::deque<Forgotten> forgotten_;  // oldest first
};

// Decides which names get a cache id at the root, and which ids are revoked. A name gets an id at its second
// agreement, so that names used once do not fill the cache. If the cache is full, a name replaces the least recently
// used name, but only if that name has been unused for longer than the new name's interval between uses. Thus, if a
// step has more names than the cache has slots, some names keep their ids.
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
  uint64_t now_ = 0;                                // a clock that advances with each agreement
  std::vector<Slot> slots_;                         // by slot; the first is the list's head
  std::unordered_map<std::string, uint64_t> seen_;  // names without an id: last agreement
  std::deque<std::pair<std::string, uint64_t>> seen_order_;
};

}  // namespace hvd::runtime
