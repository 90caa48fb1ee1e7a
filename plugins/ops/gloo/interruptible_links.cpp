#include "ops/gloo/interruptible_links.h"

#include <gloo/common/error.h>

#include <utility>
#include <vector>

namespace hvd::ops::gloo_backend {

using ::gloo::transport::UnboundBuffer;

// Gloo's own buffer. The links know it until its end.
class InterruptibleLinks::Buffer : public UnboundBuffer {
 public:
  Buffer(InterruptibleLinks& links, std::unique_ptr<UnboundBuffer> buffer)
      : UnboundBuffer(buffer->ptr, buffer->size), links_(links), buffer_(std::move(buffer)) {
    const MutexLock lock(links_.mutex_);
    check(!links_.is_interrupted_);
    links_.buffers_.insert(buffer_.get());
  }
  ~Buffer() override {
    const MutexLock lock(links_.mutex_);
    links_.buffers_.erase(buffer_.get());
  }
  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override {
    return check(buffer_->waitRecv(rank, timeout));
  }
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override {
    return check(buffer_->waitSend(rank, timeout));
  }
  void abortWaitRecv() override { buffer_->abortWaitRecv(); }
  void abortWaitSend() override { buffer_->abortWaitSend(); }
  void send(int to, uint64_t slot, size_t offset, size_t size) override {
    buffer_->send(to, slot, offset, size);
  }
  void recv(int from, uint64_t slot, size_t offset, size_t size) override {
    buffer_->recv(from, slot, offset, size);
  }
  void recv(std::vector<int> from, uint64_t slot, size_t offset, size_t size) override {
    buffer_->recv(std::move(from), slot, offset, size);
  }

 private:
  static bool check(bool has_completed) {
    if (!has_completed) throw ::gloo::IoException("the job was aborted");
    return true;
  }
  InterruptibleLinks& links_;
  const std::unique_ptr<UnboundBuffer> buffer_;
};

std::unique_ptr<UnboundBuffer> InterruptibleLinks::createUnboundBuffer(void* memory, size_t size) {
  return std::make_unique<Buffer>(*this, links_->createUnboundBuffer(memory, size));
}

void InterruptibleLinks::interrupt() {
  const MutexLock lock(mutex_);
  is_interrupted_ = true;
  for (UnboundBuffer* buffer : buffers_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

}  // namespace hvd::ops::gloo_backend
