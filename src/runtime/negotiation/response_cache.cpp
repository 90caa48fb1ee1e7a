#include "runtime/negotiation/response_cache.h"

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

}  // namespace hvd::runtime
