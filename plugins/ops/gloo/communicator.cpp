#include "ops/gloo/communicator.h"

#include <pthread.h>

#include <chrono>
#include <exception>

#include "base/text.h"
#include "ops/gloo/collectives.h"

namespace hvd::ops::gloo_backend {

namespace {

// A connection that breaks is seldom the cause: what the controller learns meanwhile goes before.
constexpr std::chrono::seconds kGrace{2};

}  // namespace

struct GlooCommunicator::GlooQueuedBatch {
  const hvd_batch* batch;
  Status status;  // before `over`
  std::atomic<bool> over{false};
};

class GlooCommunicator::GlooRunningBatch : public RunningBatch {
 public:
  explicit GlooRunningBatch(std::shared_ptr<GlooQueuedBatch> queued) : queued_(std::move(queued)) {}
  std::optional<Status> poll() override {
    if (!queued_->over.load(std::memory_order_acquire)) return std::nullopt;
    return queued_->status;
  }

 private:
  const std::shared_ptr<GlooQueuedBatch> queued_;
};

GlooCommunicator::GlooCommunicator(Connect connect, std::function<void()> wake)
    : connect_(std::move(connect)), wake_(std::move(wake)), thread_([this] { work(); }) {}

GlooCommunicator::~GlooCommunicator() {
  cut();
  thread_.join();
}

void GlooCommunicator::cut() {
  std::shared_ptr<::gloo::Context> context;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    context = context_;
    if (failure_.ok()) failure_ = aborted("Gloo: the process set was closed");
  }
  changed_.notify_all();
  if (context != nullptr && context->size > 1) context->closeConnections();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !running_; });
}

Result<std::unique_ptr<RunningBatch>> GlooCommunicator::start(const hvd_batch& batch) {
  auto queued = std::make_shared<GlooQueuedBatch>();
  queued->batch = &batch;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(queued);
  }
  changed_.notify_all();
  return std::unique_ptr<RunningBatch>(std::make_unique<GlooRunningBatch>(std::move(queued)));
}

Status GlooCommunicator::run_guarded(const std::function<Status()>& body) {
  try {
    return body();
  } catch (const std::exception& failure) {
    const std::string text = failure.what();
    return aborted(cat("Gloo: ", text.substr(0, text.find('\n'))));
  }
}

void GlooCommunicator::work() {
  ::pthread_setname_np(::pthread_self(), "hvd-gloo");
  std::shared_ptr<::gloo::Context> context;
  Status status = run_guarded([&]() -> Status {
    HVD_ASSIGN_OR_RETURN(context, connect_());
    return {};
  });
  uint32_t tag = 0;
  std::unique_lock lock(mutex_);
  context_ = context;
  if (failure_.ok()) failure_ = status;
  for (;;) {
    changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (closing_) return;
    const std::shared_ptr<GlooQueuedBatch> queued = std::move(queue_.front());
    queue_.pop_front();
    queued->status = failure_;
    if (failure_.ok()) {
      running_ = true;
      lock.unlock();
      queued->status = run_guarded([&]() -> Status {
        run_batch(context, *queued->batch, ++tag);
        return {};
      });
      lock.lock();
      running_ = false;
      changed_.notify_all();
      if (failure_.ok()) failure_ = queued->status;
      if (!failure_.ok()) changed_.wait_for(lock, kGrace, [this] { return closing_; });
    }
    queued->over.store(true, std::memory_order_release);
    wake_();
  }
}

}  // namespace hvd::ops::gloo_backend
