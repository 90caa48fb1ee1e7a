#include "runtime/negotiation/response_cache.h"

#include <algorithm>
#include <utility>

namespace hvd::runtime {

CacheEntry* ResponseCache::find(std::string_view text) const {
  const auto found = by_text_.find(text);
  return found == by_text_.end() ? nullptr : found->second;
}

const CacheEntry* ResponseCache::find_forgotten(uint32_t id) const {
  for (const Forgotten& forgotten : forgotten_) {
    if (forgotten.entry->id == id) return forgotten.entry.get();
  }
  return nullptr;
}

CacheEntry* ResponseCache::put(uint32_t id, std::string_view text) {
  if (CacheEntry* entry = find(id)) return entry->text == text ? entry : nullptr;
  const uint32_t slot = slot_of(id);
  if (slot == 0 || slot > entries_.size() + 1 || by_text_.contains(text)) return nullptr;
  if (slot > entries_.size()) entries_.emplace_back();
  auto& place = entries_[slot - 1];
  if (place != nullptr) return nullptr;
  place = std::make_unique<CacheEntry>();
  place->id = id;
  place->text = text;
  by_text_.emplace(place->text, place.get());
  return place.get();
}

void ResponseCache::forget(CacheEntry* entry, uint64_t plan) {
  by_text_.erase(entry->text);
  auto& place = entries_[slot_of(entry->id) - 1];
  entry->name = nullptr;
  forgotten_.push_back({plan, std::move(place)});
}

void ResponseCache::bury(uint64_t plans) {
  while (!forgotten_.empty() && forgotten_.front().plan < plans) forgotten_.pop_front();
}

CachePolicy::CachePolicy(uint32_t capacity)
    : capacity_(std::min(capacity, ResponseCache::kSlots - 1)), slots_(1) {}

void CachePolicy::use(uint32_t id) {
  const uint32_t slot = ResponseCache::slot_of(id);
  unlink(slot);
  link_newest(slot);
}

uint32_t CachePolicy::admit(const std::string& text, uint32_t* forgotten) {
  *forgotten = 0;
  if (capacity_ == 0) return 0;
  const uint64_t seen = last_seen(text);
  if (seen == 0) return 0;
  uint32_t slot = 0;
  if (slots_.size() <= capacity_) {
    slot = static_cast<uint32_t>(slots_.size());
    slots_.push_back({slot, 0, slot, slot});
  } else {
    slot = slots_[0].newer;  // the oldest slot follows the list's head
    if (slots_[slot].used >= seen) return 0;
    *forgotten = slots_[slot].id;
    slots_[slot].id = ResponseCache::id_after(slots_[slot].id);
    unlink(slot);
  }
  seen_.erase(text);
  link_newest(slot);
  return slots_[slot].id;
}

// Returns the time of the name's previous agreement, or 0, and stores the current time.
uint64_t CachePolicy::last_seen(const std::string& text) {
  const uint64_t now = ++now_;
  uint64_t& seen = seen_[text];
  const uint64_t before = std::exchange(seen, now);
  seen_order_.emplace_back(text, now);
  const size_t remembered = 4 * std::max<size_t>(capacity_, 1024);
  while (seen_order_.size() > remembered) {
    const auto found = seen_.find(seen_order_.front().first);
    if (found != seen_.end() && found->second == seen_order_.front().second) seen_.erase(found);
    seen_order_.pop_front();
  }
  return before;
}

void CachePolicy::unlink(uint32_t slot) {
  const Slot& one = slots_[slot];
  slots_[one.older].newer = one.newer;
  slots_[one.newer].older = one.older;
}

void CachePolicy::link_newest(uint32_t slot) {
  Slot& one = slots_[slot];
  one.used = ++now_;
  one.older = slots_[0].older;
  one.newer = 0;
  slots_[one.older].newer = slot;
  slots_[0].older = slot;
}

}  // namespace hvd::runtime
