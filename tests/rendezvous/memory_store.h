// A store inside this process, for tests with several runtimes in one process. Owns its values. Any
// thread may call; a waiting call blocks on its own condition variable.
#pragma once

#include <condition_variable>
#include <memory>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/text.h"
#include "rendezvous/store/exchange.h"
#include "rendezvous/store/state.h"
#include "rendezvous/store/store.h"

namespace hvd::rendezvous {

class MemoryStore final : public Store {
 public:
  Status set(std::string_view key, ByteView value, Deadline) override {
    auto held = std::make_shared<Value>(Value{Bytes(value.begin(), value.end()), {}});
    MutexLock lock(mutex_);
    return state_.set(key, std::move(held));
  }

  Result<Bytes> get(std::string_view key, Deadline) override {
    HVD_RETURN_IF_ERROR(check_key(key));
    MutexLock lock(mutex_);
    const ValuePtr value = state_.get(key);
    if (!value) return not_found(cat("there is no key '", printable(key), "'"));
    return value->bytes;
  }

  Result<Bytes> wait(std::string_view key, Deadline deadline) override {
    HVD_RETURN_IF_ERROR(check_key(key));
    MutexLock lock(mutex_);
    if (const ValuePtr value = state_.get(key)) return value->bytes;
    WaitingAnswer waiting;
    const StoreState::Ticket ticket =
        state_.wait(key, [&waiting](ValuePtr value) { waiting.fill(std::move(value)); });
    if (const auto value = waiting.await(lock.native(), deadline)) return (*value)->bytes;
    state_.withdraw(ticket);
    return deadline_exceeded(cat("the key '", printable(key), "' was not set in time"));
  }

  Status remove(std::string_view key, Deadline) override {
    MutexLock lock(mutex_);
    return state_.remove(key);
  }

  Result<Swap> compare_and_set(std::string_view key, std::optional<ByteView> expected,
                               ByteView value, Deadline) override {
    auto held = std::make_shared<Value>(Value{Bytes(value.begin(), value.end()), {}});
    MutexLock lock(mutex_);
    HVD_ASSIGN_OR_RETURN(const StoreState::Swapped result,
                         state_.compare_and_set(key, expected, std::move(held)));
    Swap swap{result.swapped, {}};
    if (result.value) swap.value = result.value->bytes;
    return swap;
  }

  Result<std::vector<Bytes>> exchange(std::string_view name, const Party& party, ByteView record,
                                      Deadline deadline) override {
    HVD_RETURN_IF_ERROR(check_party(party));
    MutexLock lock(mutex_);
    WaitingAnswer waiting;
    std::optional<Exchanges::Ticket> ticket;
    HVD_ASSIGN_OR_RETURN(
        ValuePtr text,
        exchanges_.join(
            name, party.count, party.index, Bytes(record.begin(), record.end()),
            ranges_of(party.wanted), [&waiting](ValuePtr value) { waiting.fill(std::move(value)); },
            &ticket));
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

  Status forget(std::string_view exchange, Deadline) override {
    MutexLock lock(mutex_);
    exchanges_.remove(exchange);
    return {};
  }

 private:
  // Passes the answer to a blocked call, on whose stack it lives.
  class WaitingAnswer {
   public:
    // The caller holds the lock.
    void fill(ValuePtr answer) {
      answer_ = std::move(answer);
      ready_.notify_one();
    }
    // Returns nothing if the deadline passes first.
    std::optional<ValuePtr> await(std::unique_lock<std::mutex>& lock, Deadline deadline) {
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
    std::optional<ValuePtr> answer_;
  };

  Mutex mutex_;
  StoreState state_ HVD_GUARDED_BY(mutex_);
  Exchanges exchanges_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::rendezvous
