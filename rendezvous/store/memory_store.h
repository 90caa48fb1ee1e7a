// A store inside this process, for tests with several runtimes in one process. Owns its values. Any
// thread may call; a waiting call blocks on its own condition variable.
#pragma once

#include "base/mutex.h"
#include "rendezvous/store/exchange.h"
#include "rendezvous/store/state.h"
#include "rendezvous/store/store.h"

namespace hvd::rendezvous {

class MemoryStore final : public Store {
 public:
  Status set(std::string_view key, ByteView value, Deadline deadline) override;
  Result<Bytes> get(std::string_view key, Deadline deadline) override;
  Result<Bytes> wait(std::string_view key, Deadline deadline) override;
  Status remove(std::string_view key, Deadline deadline) override;
  Result<Swap> compare_and_set(std::string_view key, std::optional<ByteView> expected,
                               ByteView value, Deadline deadline) override;
  Result<std::vector<Bytes>> exchange(std::string_view name, const Party& party, ByteView record,
                                      Deadline deadline) override;
  Status forget(std::string_view exchange, Deadline deadline) override;

 private:
  Mutex mutex_;
  StoreState state_ HVD_GUARDED_BY(mutex_);
  Exchanges exchanges_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::rendezvous
