#include "completion.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "library.h"

namespace hvd::tensorflow {

namespace {

// Seconds that the thread waits for the oldest work before it looks at the others.
constexpr double kFirstSlice = 0.002;
constexpr double kLongestSlice = 0.1;

int code_of(int status) {
  if (status == HVD_INVALID_ARGUMENT || status == HVD_ALREADY_EXISTS || status == HVD_NOT_FOUND) {
    return kInvalidArgument;
  }
  return status == HVD_UNIMPLEMENTED ? kUnimplemented : kUnknown;
}

// Copies what the runtime lends into tensors of the graph. Leaves what failed in `status`.
void copy_outputs(const TfApi& api, const Work& work, Status* status, char* error) {
  const size_t count = work.inputs.size() - (work.operation->has_splits ? 1 : 0);
  for (size_t i = 0; i < count; ++i) {
    hvd_output output{};
    output.struct_size = sizeof output;
    const int got = library()->get_output(work.handle, static_cast<uint32_t>(i), &output, error,
                                          kErrorSize);
    if (got != HVD_OK) return api.set_status(status, kUnknown, error);
    size_t bytes = size_of_dtype(output.dtype);
    for (int d = 0; d < output.ndim; ++d) bytes *= static_cast<size_t>(output.shape[d]);
    Tensor* tensor = api.allocate_output(work.context, static_cast<int>(i),
                                         dtype_for_tensorflow(output.dtype), output.shape,
                                         output.ndim, bytes, status);
    if (api.get_code(status) != kOk) return;
    if (bytes > 0) std::memcpy(api.data(tensor), output.data, bytes);
    api.delete_tensor(tensor);
    if (!work.operation->has_splits) continue;
    const int64_t ranks = output.received_split_count;
    tensor = api.allocate_output(work.context, static_cast<int>(i) + 1, 3 /* int32 */, &ranks, 1,
                                 sizeof(int32_t) * static_cast<size_t>(ranks), status);
    if (api.get_code(status) != kOk) return;
    if (ranks > 0) {
      std::memcpy(api.data(tensor), output.received_splits,
                  sizeof(int32_t) * static_cast<size_t>(ranks));
    }
    api.delete_tensor(tensor);
  }
}

void complete(Work* work, int status, char* error) {
  if (status == HVD_OK && !work->operation->keeps_shapes) {
    const TfApi& api = *tf_api();
    Status* copied = api.new_status();
    copy_outputs(api, *work, copied, error);
    if (api.get_code(copied) != kOk) api.failure(work->context, copied);
    api.delete_status(copied);
  }
  std::vector<char> unused(kErrorSize);
  library()->release(work->handle, unused.data(), unused.size());
  finish(work, status, status == HVD_OK ? nullptr : error);
}

class Waiter {
 public:
  void add(Work* work) {
    const std::lock_guard lock(mutex_);
    if (!runs_) std::thread([this] { run(); }).detach();
    runs_ = true;
    arrived_.push_back(work);
    changed_.notify_one();
  }

 private:
  void run() {
    std::vector<char> error(kErrorSize);
    double slice = kFirstSlice;
    for (;;) {
      take_arrivals();
      const int status = library()->wait(open_.front()->handle, slice, error.data(), error.size());
      if (status == HVD_IN_PROGRESS) {
        slice = std::min(slice * 2, kLongestSlice);
      } else {
        slice = kFirstSlice;
        Work* work = open_.front();
        open_.pop_front();
        complete(work, status, error.data());
      }
      if (complete_others(error.data())) slice = kFirstSlice;
    }
  }

  void take_arrivals() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !open_.empty() || !arrived_.empty(); });
    open_.insert(open_.end(), arrived_.begin(), arrived_.end());
    arrived_.clear();
  }

  // Ranks may have handed in something younger first. Returns whether any was complete.
  bool complete_others(char* error) {
    bool any = false;
    for (auto at = open_.begin(); at != open_.end();) {
      int32_t is_done = 0;
      Work* work = *at;
      const int polled = library()->poll(work->handle, &is_done, error, kErrorSize);
      if (polled == HVD_OK && is_done == 0) {
        ++at;
        continue;
      }
      at = open_.erase(at);
      any = true;
      complete(work, library()->wait(work->handle, -1, error, kErrorSize), error);
    }
    return any;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool runs_ = false;           // guarded by mutex_
  std::deque<Work*> arrived_;   // guarded by mutex_
  std::deque<Work*> open_;      // the thread's own
};

}  // namespace

void finish(Work* work, int status, const char* message) {
  const TfApi& api = *tf_api();
  if (message != nullptr) {
    Status* failed = api.new_status();
    const std::string text = std::string(work->operation->name) + " " + work->name + ": " + message;
    api.set_status(failed, code_of(status), text.c_str());
    api.failure(work->context, failed);
    api.delete_status(failed);
  }
  for (Tensor* tensor : work->inputs) api.delete_tensor(tensor);
  for (Tensor* tensor : work->outputs) api.delete_tensor(tensor);
  const std::function<void()> done = std::move(work->done);
  delete work;
  done();
}

void await(Work* work) {
  static Waiter* const waiter = new Waiter;  // its thread runs as long as the process
  waiter->add(work);
}

}  // namespace hvd::tensorflow
