#include "ops/gloo/team.h"

#include <pthread.h>

#include <chrono>
#include <exception>

#include "base/text.h"
#include "ops/gloo/collectives.h"

namespace hvd::ops::gloo_engine {

namespace {

// A connection that breaks is seldom the cause: what the controller learns meanwhile goes before.
constexpr std::chrono::seconds kGrace{2};

}  // namespace

struct GlooTeam::Task {
  const hvd_batch* batch;
  Status status;  // before `over`
  std::atomic<bool> over{false};
};

class GlooTeam::GlooWork : public Work {
 public:
  explicit GlooWork(std::shared_ptr<Task> task) : task_(std::move(task)) {}
  std::optional<Status> poll() override {
    if (!task_->over.load(std::memory_order_acquire)) return std::nullopt;
    return task_->status;
  }

 private:
  const std::shared_ptr<Task> task_;
};

GlooTeam::GlooTeam(Connect connect, std::function<void()> wake)
    : connect_(std::move(connect)), wake_(std::move(wake)), thread_([this] { work(); }) {}

GlooTeam::~GlooTeam() {
  cut();
  thread_.join();
}

void GlooTeam::cut() {
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

Result<std::unique_ptr<Work>> GlooTeam::start(const hvd_batch& batch) {
  auto task = std::make_shared<Task>();
  task->batch = &batch;
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(task);
  }
  changed_.notify_all();
  return std::unique_ptr<Work>(std::make_unique<GlooWork>(std::move(task)));
}

Status GlooTeam::run_guarded(const std::function<Status()>& body) {
  try {
    return body();
  } catch (const std::exception& failure) {
    const std::string text = failure.what();
    return aborted(cat("Gloo: ", text.substr(0, text.find('\n'))));
  }
}

void GlooTeam::work() {
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
    changed_.wait(lock, [&] { return closing_ || !tasks_.empty(); });
    if (closing_) return;
    const std::shared_ptr<Task> task = std::move(tasks_.front());
    tasks_.pop_front();
    task->status = failure_;
    if (failure_.ok()) {
      running_ = true;
      lock.unlock();
      task->status = run_guarded([&]() -> Status {
        run_batch(context, *task->batch, ++tag);
        return {};
      });
      lock.lock();
      running_ = false;
      changed_.notify_all();
      if (failure_.ok()) failure_ = task->status;
      if (!failure_.ok()) changed_.wait_for(lock, kGrace, [this] { return closing_; });
    }
    task->over.store(true, std::memory_order_release);
    wake_();
  }
}

}  // namespace hvd::ops::gloo_engine
