// A store in this process: for tests, and for a world of one. Any thread may call; a waiting call
// blocks on a condition variable of its own.
#pragma once

#include <mutex>

#include "rendezvous/state.h"
#include "rendezvous/store.h"

namespace hvd::rendezvous {

class MemoryStore final : public Store {
 public:
  Status set(std::string_view key, ByteView value, Deadline deadline) override;
  Result<Bytes> get(std::string_view key, Deadline deadline) override;
  Result<Bytes> wait(std::string_view key, Deadline deadline) override;
  Result<int64_t> add(std::string_view key, int64_t amount, Deadline deadline) override;
  Status fence(std::string_view name, int count, Deadline deadline) override;
  Status remove(std::string_view key, Deadline deadline) override;

 private:
  std::mutex mutex_;
  State state_;  // guarded by mutex_
};

}  // namespace hvd::rendezvous
