#include "ops/gloo/communicator.h"

#include <gloo/context.h>

#include "ops/gloo/batch.h"
#include "ops/gloo/library.h"

namespace hvd::ops::gloo_backend {

// The LibraryThread of Gloo. Gloo's operations wait for peers until Gloo's timeout; interrupt() ends them at once.
class GlooThread : public LibraryThread {
 public:
  GlooThread(const GlooWorld& world, const ProcessSetDescriptor& set)
      : LibraryThread("hvd-gloo", "Gloo", world.event), world_(world), set_(set) {}

  std::shared_ptr<::gloo::Context> context() {
    const MutexLock lock(mutex_);
    return context_;
  }
  uint32_t next_tag() { return ++tag_; }

 protected:
  Status open_library() override {
    HVD_ASSIGN_OR_RETURN(auto context, connect(world_.host, world_.device, set_.name("gloo"),
                                               set_.index_of(world_.rank), set_.size(),
                                               set_.size() == world_.size, world_.timeout));
    const MutexLock lock(mutex_);
    context_ = std::move(context);
    return {};
  }
  void interrupt() override {
    const std::shared_ptr<::gloo::Context> opened = context();
    if (opened != nullptr) gloo_backend::interrupt(*opened);
  }

 private:
  const GlooWorld world_;
  const ProcessSetDescriptor set_;
  uint32_t tag_ = 0;
  Mutex mutex_;
  std::shared_ptr<::gloo::Context> context_ HVD_GUARDED_BY(mutex_);
};

namespace {

class GlooBatch : public QueuedBatch {
 public:
  GlooBatch(GlooThread& thread, const hvd_batch& batch) : QueuedBatch(batch), thread_(thread) {}
  Status start() override {
    run_batch(thread_.context(), batch_, thread_.next_tag());
    return {};
  }

 private:
  GlooThread& thread_;  // the thread that runs the batch
};

}  // namespace

GlooCommunicator::GlooCommunicator(const GlooWorld& world, const ProcessSetDescriptor& set)
    : thread_(std::make_shared<GlooThread>(world, set)) {
  thread_->start();
}

GlooCommunicator::~GlooCommunicator() { thread_->stop(Deadline::never()); }

Result<std::shared_ptr<RunningBatch>> GlooCommunicator::start(const hvd_batch& batch) {
  auto queued = std::make_shared<GlooBatch>(*thread_, batch);
  thread_->add(queued);
  return std::shared_ptr<RunningBatch>(std::move(queued));
}

void GlooCommunicator::begin_abort() { thread_->begin_end(); }

// Needs no deadline, because interrupted Gloo operations return soon.
void GlooCommunicator::abort(Deadline) { thread_->close(); }

}  // namespace hvd::ops::gloo_backend
