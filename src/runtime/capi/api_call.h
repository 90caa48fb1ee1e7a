// The prologue of the functions of the C ABI: ApiCall keeps the runtime alive during a call, guarded() reports errors
// and catches exceptions. Any thread.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/metrics/metrics.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/text.h"
#include "runtime/bootstrap/elastic_process.h"
#include "runtime/bootstrap/rank_claim.h"
#include "runtime/runtime.h"

namespace hvd::runtime::api {

// Never destroyed, so that a call during exit can use it.
struct ApiState {
  Mutex mutex;                             // held by init and shutdown
  std::atomic<Runtime*> current{nullptr};  // kept after shutdown, until the next init
  std::atomic<bool> initialized{false};
  std::atomic<bool> forked{false};  // this process was forked from the one that called init
  std::atomic<uint32_t> calls{0};   // calls that may be using `current`
  // The last of `places`, from hvd_init until the training ranks admit this process; else nullptr.
  std::atomic<const Identity*> provisional{nullptr};
  std::deque<Identity>* places HVD_GUARDED_BY(mutex) = nullptr;  // a call may read an old place
  double start_seconds HVD_GUARDED_BY(mutex) = 0;  // the caller's limit, for a provisional start
  void (*joined)(void) HVD_GUARDED_BY(mutex) = nullptr;  // hvd_init_options.joined
  uint32_t epoch HVD_GUARDED_BY(mutex) = 0;              // number of starts of this process
  // The number of starts for each list of ranks (empty: all). All ranks of a list count the same starts.
  std::map<std::vector<int32_t>, uint32_t>* starts HVD_GUARDED_BY(mutex) = nullptr;
  bool watches_forks HVD_GUARDED_BY(mutex) = false;
  StackChannel stack HVD_GUARDED_BY(mutex);
  std::atomic<ElasticProcess*> elastic{nullptr};  // made once, in an elastic job
  // Bootstrap::session, from init to shutdown.
  std::shared_ptr<void>* session HVD_GUARDED_BY(mutex) = nullptr;
  // Results of the bootstrap that later starts of this process reuse. Its forked children do not use them.
  SavedBootstrap* saved_bootstrap HVD_GUARDED_BY(mutex) = nullptr;
  pid_t saved_by_process HVD_GUARDED_BY(mutex) = 0;
  // Held from init to shutdown.
  RankClaim* claim HVD_GUARDED_BY(mutex) = nullptr;
  MetricsPage* metrics_page HVD_GUARDED_BY(mutex) = nullptr;  // made once; null without an agent
  pid_t metrics_owner HVD_GUARDED_BY(mutex) = 0;              // the process that made metrics_page
  std::once_flag heap_made;
  collectives::SharedHeap* heap = nullptr;  // made once, at the first use
};
extern constinit ApiState state;

// Returns the heap of hvd_alloc, which may exist before the runtime, and outlives it.
collectives::SharedHeap& heap();

// Requests the final place of a process with a provisional place, and blocks until this process has joined the other
// ranks.
Status complete_init(rendezvous::PlaceRequestFrom from);

// Keeps `current` alive during a call.
class ApiCall {
 public:
  ApiCall() {
    state.calls.fetch_add(1);
    provisional_ = state.provisional.load();
    runtime_ = state.current.load();
  }
  ~ApiCall() { state.calls.fetch_sub(1); }
  ApiCall(const ApiCall&) = delete;

  Runtime* runtime() const { return runtime_; }
  // Returns nullptr before hvd_init.
  const Identity* identity() const {
    if (provisional_ != nullptr) return provisional_;
    return runtime_ != nullptr ? &runtime_->identity() : nullptr;
  }
  // Returns ok if a runtime exists. With a provisional place, first requests the final place, and blocks until this
  // process has joined the ranks.
  Status check(rendezvous::PlaceRequestFrom from = rendezvous::PlaceRequestFrom::kCollective) {
    if (state.forked.load(std::memory_order_relaxed)) {
      return failed_precondition(
          "Horovod was initialised before this process was forked, and cannot be used in the "
          "child; start it by exec, or call hvd.init in the child alone");
    }
    if (state.provisional.load(std::memory_order_relaxed) != nullptr) {
      state.calls.fetch_sub(1);  // the new runtime waits for all calls
      const Status status = complete_init(from);
      state.calls.fetch_add(1);
      HVD_RETURN_IF_ERROR(status);
    }
    if (provisional_ != nullptr) runtime_ = state.current.load();
    if (runtime_ == nullptr) {
      return failed_precondition("Horovod has not been initialized; use hvd.init()");
    }
    return {};
  }

 private:
  const Identity* provisional_;
  Runtime* runtime_;
};

inline int finish(const Status& status, char* error, size_t error_size) {
  if (!status.ok() && error != nullptr && error_size > 0) {
    const std::string& message = status.message();
    const size_t size = std::min(message.size(), error_size - 1);
    std::memcpy(error, message.data(), size);
    error[size] = '\0';
  }
  return static_cast<int>(status.code());
}

// Copies as many bytes as the caller's struct_size states, at most sizeof(T), and zeroes the rest. `least`: the
// smallest valid struct_size.
template <typename T>
Status copy_sized(const T* from, size_t least, T* to) {
  std::memset(static_cast<void*>(to), 0, sizeof *to);
  if (from == nullptr) return invalid_argument("the struct is NULL");
  if (from->struct_size < least) {
    return invalid_argument(
        cat("struct_size is ", from->struct_size, "; set it to the struct's sizeof"));
  }
  std::memcpy(static_cast<void*>(to), from, std::min(from->struct_size, sizeof *to));
  return {};
}

// Returns the code of f's Status. An exception (out of memory) becomes an error.
template <typename F>
int guarded(char* error, size_t error_size, F&& f) {
  try {
    return finish(f(), error, error_size);
  } catch (const std::exception& exception) {
    return finish(status_of(exception), error, error_size);
  }
}

// Calls f(runtime), which returns a Status. Returns an error if no runtime exists.
template <typename F>
int with_runtime(char* error, size_t error_size, F&& f) {
  return guarded(error, error_size, [&]() -> Status {
    ApiCall call;
    HVD_RETURN_IF_ERROR(call.check());
    return f(*call.runtime());
  });
}

}  // namespace hvd::runtime::api
