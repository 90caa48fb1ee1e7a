#include "rendezvous/scoped_store.h"

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

}  // namespace hvd::rendezvous
