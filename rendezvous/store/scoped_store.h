// A view of another store under a prefix: key "k" in scope "s" is key "s/k" of that store. The names of
// fences and exchanges get the same prefix. Owns no values. Any thread may call.
#pragma once

#include <string>

#include "rendezvous/store/store.h"

namespace hvd::rendezvous {

class ScopedStore final : public Store {
 public:
  // `store` outlives this object.
  ScopedStore(Store& store, std::string_view scope);

  Status set(std::string_view key, ByteView value, Deadline deadline) override;
  Result<Bytes> get(std::string_view key, Deadline deadline) override;
  Result<Bytes> wait(std::string_view key, Deadline deadline) override;
  Result<int64_t> add(std::string_view key, int64_t amount, Deadline deadline) override;
  Status fence(std::string_view name, int count, Deadline deadline) override;
  Status remove(std::string_view key, Deadline deadline) override;
  Status set_for(std::string_view key, ByteView value, std::chrono::milliseconds lifetime,
                 Deadline deadline) override;
  Result<Swap> compare_and_set(std::string_view key, std::optional<ByteView> expected,
                               ByteView value, Deadline deadline) override;
  Result<std::vector<std::string>> list(std::string_view prefix, Deadline deadline) override;
  Result<Changes> watch(std::string_view prefix, std::optional<uint64_t> revision,
                        Deadline deadline) override;
  Result<std::vector<Bytes>> exchange(std::string_view name, const Party& party, ByteView record,
                                      Deadline deadline) override;
  Status forget(std::string_view exchange, Deadline deadline) override;

 private:
  // An empty key stays empty: the store below then refuses it.
  std::string full(std::string_view key) const;

  Store& store_;
  std::string prefix_;
};

}  // namespace hvd::rendezvous
