// Runs one collective as a coroutine. poll() resumes it when the Condition that it waits for is ready. Starts no
// thread and never blocks. To abort a collective, the owner destroys its frames: the algorithms contain no error
// handling. The built-in backend owns a Flow per process set, GroupRunner one per group.
#pragma once

#include <array>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <utility>

namespace hvd::collectives {

class Condition {
 public:
  // The progress thread calls this often, so an implementation must be cheap. The call may move bytes.
  virtual bool ready() = 0;
  // Returns a global rank that the condition waits for, or -1 when the rank is unknown.
  virtual int waits_for() const { return -1; }

 protected:
  ~Condition() = default;
};

// A stack of memory for the coroutine frames of one flow. A frame lies on the heap only if the stack is full.
class FrameStack {
 public:
  void* take(size_t size);
  static void give_back(void* frame);

 private:
  // A collective's state may need the alignment of a cache line, but a coroutine's operator new
  // gets no alignment.
  static constexpr size_t kAlign = 64;
  struct alignas(kAlign) Header {
    FrameStack* stack;  // null when the frame lies on the heap
    size_t size;
  };
  static constexpr size_t kSize = 16 * 1024;
  alignas(kAlign) std::array<std::byte, kSize> memory_;
  size_t used_ = 0;
};

class Flow;

// The coroutine type of collectives. The first parameter of a coroutine is its Flow. Awaiting a
// Coroutine runs it to its end.
class [[nodiscard]] Coroutine {
 public:
  struct promise_type {
    std::coroutine_handle<> caller;

    template <typename... Rest>
    static void* operator new(size_t size, Flow& flow, Rest&&...) {
      return take_frame(flow, size);
    }
    static void operator delete(void* frame, size_t) { FrameStack::give_back(frame); }

    Coroutine get_return_object() {
      return Coroutine(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct Final {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> self) noexcept {
        const auto caller = self.promise().caller;
        return caller ? caller : std::noop_coroutine();
      }
      void await_resume() noexcept {}
    };
    Final final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };

  Coroutine(Coroutine&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Coroutine& operator=(Coroutine&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Coroutine() = default;
  ~Coroutine() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) noexcept {
    handle_.promise().caller = caller;
    return handle_;
  }
  void await_resume() const noexcept {}

 private:
  friend class Flow;
  explicit Coroutine(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  static void* take_frame(Flow& flow, size_t size);
  std::coroutine_handle<promise_type> handle_;
};

class Flow {
 public:
  Flow() = default;
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  // Takes a coroutine made with this flow and runs it up to its first wait.
  void start(Coroutine coroutine);
  bool running() const { return static_cast<bool>(coroutine_.handle_); }
  // Resumes the coroutine if its condition is ready; returns true if it was resumed. The coroutine may
  // have ended then: see running().
  bool poll();
  // Returns whether poll() would resume the coroutine.
  bool ready() { return condition_ != nullptr && condition_->ready(); }
  // Returns the rank for which the flow waits if that rank has left, so that the flow can never continue; else -1.
  // When has_left(rank) returns true, all data from the rank must be visible to the condition.
  template <typename HasLeft>
  int awaited_rank_that_left(const HasLeft& has_left) {
    int rank = condition_ == nullptr ? -1 : condition_->waits_for();
    while (rank >= 0 && has_left(rank)) {
      if (condition_->ready()) return -1;
      // If the rank sent its data before it left, ready() has received the data, and the condition may wait for
      // another rank.
      const int next = condition_->waits_for();
      if (next == rank) return rank;
      rank = next;
    }
    return -1;
  }
  // Destroys the coroutine at its current suspension point.
  void drop();

  // The awaitable of co_await flow.until(condition).
  struct Until {
    Flow& flow;
    Condition& condition;
    bool await_ready() { return condition.ready(); }
    void await_suspend(std::coroutine_handle<> handle) {
      flow.point_ = handle;
      flow.condition_ = &condition;
    }
    void await_resume() const {}
  };
  Until until(Condition& condition) { return {*this, condition}; }

 private:
  friend class Coroutine;
  void settle();
  FrameStack frames_;
  Coroutine coroutine_;
  std::coroutine_handle<> point_;
  Condition* condition_ = nullptr;
};

inline void* Coroutine::take_frame(Flow& flow, size_t size) { return flow.frames_.take(size); }

}  // namespace hvd::collectives
