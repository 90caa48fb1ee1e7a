#include "rendezvous/store/memory_store.h"

#include <condition_variable>
#include <memory>
#include <optional>

#include "base/text.h"
#include "rendezvous/store/store_checks.h"

namespace hvd::rendezvous {
namespace {

// Carries the answer to a blocked call. Lives on the stack of that call.
template <typename T>
class WaitingAnswer {
 public:
  // The caller holds the lock.
  void fill(T answer) {
    answer_ = std::move(answer);
    ready_.notify_one();
  }
  // Nothing if the deadline passes first.
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
  MutexLock lock(mutex_);
  return state_.set(key, std::move(held));
}

Result<Bytes> MemoryStore::get(std::string_view key, Deadline) {
  HVD_RETURN_IF_ERROR(check_key(key));
  MutexLock lock(mutex_);
  const ValuePtr value = state_.get(key);
  if (!value) return not_found(cat("there is no key '", printable(key), "'"));
  return value->bytes;
}

Result<Bytes> MemoryStore::wait(std::string_view key, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(key));
  MutexLock lock(mutex_);
  if (const ValuePtr value = state_.get(key)) return value->bytes;
  WaitingAnswer<ValuePtr> waiting;
  const StoreState::Ticket ticket =
      state_.wait(key, [&waiting](ValuePtr value) { waiting.fill(std::move(value)); });
  if (const auto value = waiting.await(lock.native(), deadline)) return (*value)->bytes;
  state_.withdraw(ticket);
  return deadline_exceeded(cat("the key '", printable(key), "' was not set in time"));
}

Status MemoryStore::remove(std::string_view key, Deadline) {
  MutexLock lock(mutex_);
  return state_.remove(key);
}

Result<Swap> MemoryStore::compare_and_set(std::string_view key, std::optional<ByteView> expected,
                                          ByteView value, Deadline) {
  auto held = std::make_shared<Value>(Value{Bytes(value.begin(), value.end()), {}});
  MutexLock lock(mutex_);
  HVD_ASSIGN_OR_RETURN(const StoreState::Swapped result,
                       state_.compare_and_set(key, expected, std::move(held)));
  Swap swap{result.swapped, {}};
  if (result.value) swap.value = result.value->bytes;
  return swap;
}

Result<std::vector<Bytes>> MemoryStore::exchange(std::string_view name, const Party& party,
                                                 ByteView record, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_party(party));
  MutexLock lock(mutex_);
  WaitingAnswer<ValuePtr> waiting;
  std::optional<Exchanges::Ticket> ticket;
  HVD_ASSIGN_OR_RETURN(
      ValuePtr text, exchanges_.join(
                         name, party.count, party.index, Bytes(record.begin(), record.end()),
                         ranges_of(party.wanted),
                         [&waiting](ValuePtr value) { waiting.fill(std::move(value)); }, &ticket));
  if (ticket) {
    auto value = waiting.await(lock.native(), deadline);
    if (!value) {
      const std::string missing = exchanges_.describe(name);
      exchanges_.withdraw(*ticket);
      return deadline_exceeded(missing);
    }
    text = std::move(*value);
  }
  if (!text) return forgotten(name);
  return records_for(party, text->bytes);
}

Status MemoryStore::forget(std::string_view exchange, Deadline) {
  MutexLock lock(mutex_);
  exchanges_.remove(exchange);
  return {};
}

}  // namespace hvd::rendezvous
