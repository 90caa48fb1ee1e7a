#include "rendezvous/memory_store.h"

#include <condition_variable>
#include <memory>
#include <optional>

#include "base/text.h"

namespace hvd::rendezvous {
namespace {

// Where a blocked call finds its answer. Lives on the stack of that call.
template <typename T>
class Slot {
 public:
  // Under the lock.
  void fill(T answer) {
    answer_ = std::move(answer);
    ready_.notify_one();
  }
  // Nothing when the deadline passed first.
  std::optional<T> await(std::unique_lock<std::mutex>& lock, Deadline deadline) {
    const auto is_filled = [this] { return answer_.has_value(); };
    if (deadline.is_never()) {
      ready_.wait(lock, is_filled);
    } else {
      ready_.wait_until(lock, deadline.time(), is_filled);
    }
    return std::move(answer_);
  }

 private:
  std::condition_variable ready_;
  std::optional<T> answer_;
};

}  // namespace

Status MemoryStore::set(std::string_view key, ByteView value, Deadline) {
  auto held = std::make_shared<Value>(Value{Bytes(value.begin(), value.end()), {}});
  std::lock_guard lock(mutex_);
  return state_.set(key, std::move(held));
}

Result<Bytes> MemoryStore::get(std::string_view key, Deadline) {
  HVD_RETURN_IF_ERROR(check_key(key));
  std::lock_guard lock(mutex_);
  const ValuePtr value = state_.get(key);
  if (!value) return not_found(cat("there is no key '", printable(key), "'"));
  return value->bytes;
}

Result<Bytes> MemoryStore::wait(std::string_view key, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(key));
  std::unique_lock lock(mutex_);
  if (const ValuePtr value = state_.get(key)) return value->bytes;
  Slot<ValuePtr> slot;
  const State::Ticket ticket =
      state_.wait(key, [&slot](ValuePtr value) { slot.fill(std::move(value)); });
  if (const auto value = slot.await(lock, deadline)) return (*value)->bytes;
  state_.withdraw(ticket);
  return deadline_exceeded(cat("the key '", printable(key), "' was not set in time"));
}

Result<int64_t> MemoryStore::add(std::string_view key, int64_t amount, Deadline) {
  std::lock_guard lock(mutex_);
  return state_.add(key, amount);
}

Status MemoryStore::fence(std::string_view name, int count, Deadline deadline) {
  std::unique_lock lock(mutex_);
  Slot<Status> slot;
  HVD_ASSIGN_OR_RETURN(
      const std::optional<State::Ticket> ticket,
      state_.arrive(name, count, {}, [&slot](Status status) { slot.fill(std::move(status)); }));
  if (!ticket) return {};
  if (auto status = slot.await(lock, deadline)) return *status;
  const std::string missing = state_.describe_fence(name);
  state_.withdraw(*ticket);
  return deadline_exceeded(missing);
}

Status MemoryStore::remove(std::string_view key, Deadline) {
  std::lock_guard lock(mutex_);
  return state_.remove(key);
}

}  // namespace hvd::rendezvous
