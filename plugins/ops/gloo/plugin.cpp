// The op plugin over Gloo, for tensors in host memory.
#include "horovod/plugin.h"

#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/broadcast.h>
#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/text.h"
#include "collectives/kernels/reduce_kernels.h"
#include "horovod/plugin_op.h"
#include "ops/common/backend.h"
#include "ops/common/batch_memory.h"
#include "ops/common/batch_queue.h"
#include "ops/common/library_thread.h"
#include "ops/common/op_plugin.h"
#include "ops/common/rounds.h"
#include "ops/gloo/library.h"

namespace hvd::ops::gloo_backend {
namespace {

// The state shared by all communicators of the backend.
struct GlooWorld {
  const hvd_plugin_host& host;
  int32_t rank, size;
  double timeout;  // seconds that one operation may wait for a peer
  std::shared_ptr<::gloo::transport::Device> device;
  std::shared_ptr<WakeEvent> event;
};

class GlooThread;

// A process set's communicator in Gloo. Owns a thread that connects the members and then runs the set's batches one
// after another.
class GlooCommunicator : public BackendCommunicator {
 public:
  GlooCommunicator(const GlooWorld& world, const ProcessSetDescriptor& set);
  // Interrupts the running batch, and waits for the end of the thread.
  ~GlooCommunicator() override;
  Result<std::shared_ptr<RunningBatch>> start(const hvd_batch& batch) override;
  void begin_abort() override;
  void abort(Deadline until) override;
  bool wakes() const override { return true; }

 private:
  const std::shared_ptr<GlooThread> thread_;
};

// Runs one batch through Gloo on the calling thread, the communicator's LibraryThread. Blocks until the batch is
// complete on this member. Throws Gloo's exceptions.
// `tag` must be equal on all members, and differ from the previous batch's.
void run_batch(const std::shared_ptr<::gloo::Context>& context, const hvd_batch& batch,
               uint32_t tag);

using ContextPtr = std::shared_ptr<::gloo::Context>;

size_t width_of(const hvd_batch& batch) { return size_of(sum_dtype(batch)); }

// Calls use(T*) with an unsigned integer type of `width` bytes, since Gloo needs only the width of the elements.
template <typename Use>
void with_width(size_t width, Use&& use) {
  switch (width) {
    case 1:
      return use(static_cast<uint8_t*>(nullptr));
    case 2:
      return use(static_cast<uint16_t*>(nullptr));
    case 4:
      return use(static_cast<uint32_t*>(nullptr));
    default:
      return use(static_cast<uint64_t*>(nullptr));
  }
}

void reduce_in_place(const ContextPtr& context, const hvd_batch& batch, void* data, int64_t count,
                     uint32_t tag) {
  if (count == 0) return;
  const auto function =
      collectives::reduce_function(sum_dtype(batch), static_cast<hvd_reduce_op>(batch.reduce_op));
  ::gloo::AllreduceOptions options(context);
  options.setTag(tag);
  options.setReduceFunction([function](void* to, const void* a, const void* b, size_t n) {
    const void* const inputs[] = {a, b};
    function(to, inputs, 2, n, {}, {});
  });
  with_width(width_of(batch), [&]<typename T>(T*) {
    options.setOutput(static_cast<T*>(data), static_cast<size_t>(count));
  });
  ::gloo::allreduce(options);
}

void allreduce(const ContextPtr& context, const hvd_batch& batch, uint32_t tag) {
  const int64_t total = total_count(batch);
  if (is_direct(batch)) {
    const hvd_batch_tensor& tensor = batch.tensors[0];
    scale(tensor.output, tensor.input, batch.dtype, total, collectives::scale_before(batch));
    reduce_in_place(context, batch, tensor.output, total, tag);
    scale(tensor.output, tensor.output, batch.dtype, total, collectives::scale_after(batch));
    return;
  }
  std::vector<std::byte> packed(static_cast<size_t>(total) * width_of(batch));
  pack_reduce(batch, packed.data());
  reduce_in_place(context, batch, packed.data(), total, tag);
  unpack_reduce(batch, packed.data());
}

void reducescatter(const ContextPtr& context, const hvd_batch& batch, uint32_t tag) {
  const int64_t total = total_count(batch);
  std::vector<std::byte> packed(static_cast<size_t>(total) * width_of(batch));
  pack_scatter(batch, context->size, packed.data());
  reduce_in_place(context, batch, packed.data(), total, tag);
  const std::vector<int64_t> counts = scatter_counts(batch, context->size);
  size_t before = 0;
  for (int member = 0; member < context->rank; ++member) {
    before += static_cast<size_t>(counts[static_cast<size_t>(member)]);
  }
  unpack_scatter(batch, context->rank, context->size, packed.data() + before * width_of(batch));
}

void allgather(const ContextPtr& context, const hvd_batch& batch, uint32_t tag) {
  const std::vector<int64_t> counts = gather_counts(batch, context->size);
  const auto own = static_cast<size_t>(counts[static_cast<size_t>(context->rank)]);
  size_t total = 0;
  for (const int64_t count : counts) total += static_cast<size_t>(count);
  const size_t width = width_of(batch);
  std::vector<std::byte> sent(own * width), received(total * width);
  pack_gather(batch, sent.data());
  ::gloo::AllgathervOptions options(context);
  options.setTag(tag);
  with_width(width, [&]<typename T>(T*) {
    options.setInput(reinterpret_cast<T*>(sent.data()), own);
    options.setOutput(reinterpret_cast<T*>(received.data()), {counts.begin(), counts.end()});
  });
  ::gloo::allgatherv(options);
  unpack_gather(batch, context->size, received.data());
}

void broadcast(const ContextPtr& context, const hvd_batch& batch, uint32_t tag) {
  for (uint32_t i = 0; i < batch.tensor_count; ++i) {
    const hvd_batch_tensor& tensor = batch.tensors[i];
    const size_t bytes = static_cast<size_t>(tensor.count) * width_of(batch);
    if (bytes == 0) continue;
    if (batch.root == context->rank && tensor.output != tensor.input) {
      std::memcpy(tensor.output, tensor.input, bytes);
    }
    ::gloo::BroadcastOptions options(context);
    options.setTag(tag);
    options.setRoot(batch.root);
    options.setOutput(static_cast<uint8_t*>(tensor.output), bytes);
    ::gloo::broadcast(options);
  }
}

void alltoall(const ContextPtr& context, const hvd_batch& batch, uint32_t tag) {
  const auto size = static_cast<size_t>(context->size);
  const auto width = static_cast<int64_t>(width_of(batch));
  for (uint32_t i = 0; i < batch.tensor_count; ++i) {
    const hvd_batch_tensor& tensor = batch.tensors[i];
    std::vector<int64_t> to_each(size), from_each(size);
    for (size_t r = 0; r < size; ++r) {
      to_each[r] = tensor.rank_rows[r] * tensor.row * width;
      from_each[r] = tensor.from_rows[r] * tensor.row * width;
    }
    uint8_t nothing = 0;  // Gloo requires an address even for zero bytes
    auto* input = static_cast<uint8_t*>(const_cast<void*>(tensor.input));
    auto* output = static_cast<uint8_t*>(tensor.output);
    ::gloo::AlltoallvOptions options(context);
    options.setTag(tag);
    options.setInput(input == nullptr ? &nothing : input, std::move(to_each));
    options.setOutput(output == nullptr ? &nothing : output, std::move(from_each));
    ::gloo::alltoallv(options);
  }
}

void run_batch(const ContextPtr& context, const hvd_batch& batch, uint32_t tag) {
  switch (batch.op) {
    case HVD_ALLREDUCE:
      return allreduce(context, batch, tag);
    case HVD_REDUCESCATTER:
      return reducescatter(context, batch, tag);
    case HVD_ALLGATHER:
      return allgather(context, batch, tag);
    case HVD_BROADCAST:
      return broadcast(context, batch, tag);
    default:
      return alltoall(context, batch, tag);
  }
}

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

constexpr double kTimeoutSeconds = 30;
// Higher than the score of the built-in operations: this backend is loaded only if the user has selected it.
constexpr int32_t kScore = 200;

class GlooBackend : public Backend {
 public:
  explicit GlooBackend(GlooWorld world)
      : world_(std::move(world)), watch_(world_.host, world_.event) {}
  ~GlooBackend() override { drop_all(); }

  int32_t supports(const hvd_batch& batch) override { return is_known(batch) ? kScore : 0; }
  const char* activity(const hvd_batch& batch) override { return activity_of<"GLOO">(batch.op); }
  Result<std::unique_ptr<BackendCommunicator>> open_communicator(
      const ProcessSetDescriptor& set) override {
    return std::unique_ptr<BackendCommunicator>(std::make_unique<GlooCommunicator>(world_, set));
  }

 private:
  const GlooWorld world_;
  const WakeWatch watch_;
};

Status open_device(const hvd_plugin_host& host, const hvd_plugin_config& config,
                   std::shared_ptr<::gloo::transport::Device>* device) {
  try {
    *device = make_device(host, config);
    return {};
  } catch (const std::exception& failure) {
    const std::string text = failure.what();
    return unavailable(cat("Gloo: ", text.substr(0, text.find('\n')),
                           "; HOROVOD_GLOO_IFACE names the interface it uses"));
  }
}

struct Plugin {
  static constexpr const char* kName = "gloo";
  static constexpr int32_t kPriority = 40;
  static Status probe() { return {}; }
  static Result<std::unique_ptr<Backend>> open(const hvd_plugin_host& host,
                                               const hvd_plugin_config& config) {
    auto event = WakeEvent::make();
    std::shared_ptr<::gloo::transport::Device> device;
    const Status status = event.ok() ? open_device(host, config, &device) : event.status();
    HVD_RETURN_IF_ERROR(Rounds(host, config).exchange("gloo-device", status, "").status());
    if (config.rank == 0) host.log(host.host, 2, "tensor operations go through libgloo over TCP");
    const double timeout = number_of(host, "HOROVOD_GLOO_TIMEOUT_SECONDS", kTimeoutSeconds);
    return std::unique_ptr<Backend>(std::make_unique<GlooBackend>(
        GlooWorld{host, config.rank, config.size, timeout, std::move(device), *std::move(event)}));
  }
};

}  // namespace
}  // namespace hvd::ops::gloo_backend

HVD_PLUGIN_ENTRY(hvd::ops::BackendRecord<hvd::ops::gloo_backend::Plugin>)
