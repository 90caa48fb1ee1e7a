#include "rendezvous/store/scoped_store.h"

#include "base/text.h"

namespace hvd::rendezvous {

ScopedStore::ScopedStore(Store& store, std::string_view scope)
    : store_(store), prefix_(std::string(scope) + "/") {}

std::string ScopedStore::full(std::string_view key) const {
  return key.empty() ? std::string() : prefix_ + std::string(key);
}

Status ScopedStore::set(std::string_view key, ByteView value, Deadline deadline) {
  return store_.set(full(key), value, deadline);
}

Result<Bytes> ScopedStore::get(std::string_view key, Deadline deadline) {
  return store_.get(full(key), deadline);
}

Result<Bytes> ScopedStore::wait(std::string_view key, Deadline deadline) {
  return store_.wait(full(key), deadline);
}

Result<int64_t> ScopedStore::add(std::string_view key, int64_t amount, Deadline deadline) {
  return store_.add(full(key), amount, deadline);
}

Status ScopedStore::fence(std::string_view name, int count, Deadline deadline) {
  return store_.fence(full(name), count, deadline);
}

Status ScopedStore::remove(std::string_view key, Deadline deadline) {
  return store_.remove(full(key), deadline);
}

Status ScopedStore::set_for(std::string_view key, ByteView value,
                            std::chrono::milliseconds lifetime, Deadline deadline) {
  return store_.set_for(full(key), value, lifetime, deadline);
}

Result<Swap> ScopedStore::compare_and_set(std::string_view key, std::optional<ByteView> expected,
                                          ByteView value, Deadline deadline) {
  return store_.compare_and_set(full(key), expected, value, deadline);
}

Result<std::vector<std::string>> ScopedStore::list(std::string_view prefix, Deadline deadline) {
  auto keys = store_.list(cat(prefix_, prefix), deadline);
  if (!keys.ok()) return keys;
  for (std::string& key : *keys) key.erase(0, prefix_.size());
  return keys;
}

Result<Changes> ScopedStore::watch(std::string_view prefix, std::optional<uint64_t> revision,
                                   Deadline deadline) {
  auto found = store_.watch(cat(prefix_, prefix), revision, deadline);
  if (!found.ok()) return found;
  for (Changes::Change& change : found->changes) change.key.erase(0, prefix_.size());
  return found;
}

Result<std::vector<Bytes>> ScopedStore::exchange(std::string_view name, const Party& party,
                                                 ByteView record, Deadline deadline) {
  return store_.exchange(full(name), party, record, deadline);
}

Status ScopedStore::forget(std::string_view exchange, Deadline deadline) {
  return store_.forget(full(exchange), deadline);
}

}  // namespace hvd::rendezvous
