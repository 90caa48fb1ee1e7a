// The connections of a context of Gloo, whose calls this process can end, even while a member is silent:
// Gloo's own close wakes calls of other members, but no call of this process. GlooThread calls it.
#pragma once

#include <gloo/transport/context.h>

#include <memory>
#include <set>
#include <utility>

#include "base/mutex.h"

namespace hvd::ops::gloo_backend {

class InterruptibleLinks : public ::gloo::transport::Context {
 public:
  explicit InterruptibleLinks(std::shared_ptr<::gloo::transport::Context> links)
      : Context(links->rank, links->size), links_(std::move(links)) {}
  // For any thread: a call that waits throws, and so does each later one.
  void interrupt();

  std::unique_ptr<::gloo::transport::Pair>& getPair(int rank) override {
    return links_->getPair(rank);
  }
  std::unique_ptr<::gloo::transport::Pair>& createPair(int rank) override {
    return links_->createPair(rank);
  }
  std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* memory,
                                                                        size_t size) override;

 private:
  class Buffer;
  const std::shared_ptr<::gloo::transport::Context> links_;
  Mutex mutex_;
  bool is_interrupted_ HVD_GUARDED_BY(mutex_) = false;
  std::set<::gloo::transport::UnboundBuffer*> buffers_ HVD_GUARDED_BY(mutex_);  // those in use
};

}  // namespace hvd::ops::gloo_backend
