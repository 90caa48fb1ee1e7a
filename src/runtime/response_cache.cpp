#include "runtime/response_cache.h"

namespace hvd::runtime {

CacheEntry* ResponseCache::find(std::string_view text) const {
  const auto found = by_text_.find(text);
  return found == by_text_.end() ? nullptr : found->second;
}

CacheEntry* ResponseCache::put(uint32_t id, std::string_view text) {
  if (CacheEntry* entry = find(id)) return entry->text == text ? entry : nullptr;
  if (id != entries_.size() + 1 || by_text_.contains(text)) return nullptr;
  auto entry = std::make_unique<CacheEntry>();
  entry->id = id;
  entry->text = text;
  entries_.push_back(std::move(entry));
  CacheEntry* added = entries_.back().get();
  by_text_.emplace(added->text, added);
  return added;
}

}  // namespace hvd::runtime
