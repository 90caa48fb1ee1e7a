#include "ops/gloo/library.h"

#include <gloo/common/error.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

#include <cstdint>
#include <numeric>
#include <set>
#include <utility>

#include "base/mutex.h"
#include "base/plugin_record.h"
#include "base/text.h"
#include "ops/common/library_thread.h"
#include "ops/gloo/addresses.h"

namespace hvd::ops::gloo_backend {
namespace {

using ::gloo::transport::UnboundBuffer;

// The connections of a Gloo context. interrupt() ends calls of this process, even while a member is silent;
// Gloo's own close wakes calls of other members only.
class InterruptibleLinks : public ::gloo::transport::Context {
 public:
  explicit InterruptibleLinks(std::shared_ptr<::gloo::transport::Context> links)
      : Context(links->rank, links->size), links_(std::move(links)) {}
  // Makes each waiting call and each later call throw. Any thread.
  void interrupt();

  std::unique_ptr<::gloo::transport::Pair>& getPair(int rank) override {
    return links_->getPair(rank);
  }
  std::unique_ptr<::gloo::transport::Pair>& createPair(int rank) override {
    return links_->createPair(rank);
  }
  std::unique_ptr<UnboundBuffer> createUnboundBuffer(void* memory, size_t size) override;

 private:
  class Buffer;
  const std::shared_ptr<::gloo::transport::Context> links_;
  Mutex mutex_;
  bool is_interrupted_ HVD_GUARDED_BY(mutex_) = false;
  std::set<UnboundBuffer*> buffers_ HVD_GUARDED_BY(mutex_);  // buffers in use
};

// Wraps Gloo's buffer. The links hold a pointer to it until its destruction.
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

constexpr size_t kLongest = ::gloo::transport::Address::kMaxByteSize;

class GlooContext : public ::gloo::Context {
 public:
  GlooContext(int index, int size, std::shared_ptr<::gloo::transport::Device> device)
      : ::gloo::Context(index, size) {
    links_ = device->createContext(index, size);
    interruptible_ = std::make_shared<InterruptibleLinks>(links_);
    transportContext_ = interruptible_;
    device_ = std::move(device);
  }
  ::gloo::transport::Context& links() { return *links_; }
  void interrupt() {
    if (size == 1) return;
    interruptible_->interrupt();
    closeConnections();
  }

 private:
  std::shared_ptr<::gloo::transport::Context> links_;
  std::shared_ptr<InterruptibleLinks> interruptible_;
};

// Returns the addresses of this member, a separate address for each other member.
std::string offer_addresses(GlooContext& mesh) {
  std::string offered = address_record(static_cast<size_t>(mesh.size), kLongest);
  for (int other = 0; other < mesh.size; ++other) {
    if (other == mesh.rank) continue;
    put_address(&offered, kLongest, static_cast<size_t>(other),
                mesh.links().createPair(other)->address().bytes());
  }
  return offered;
}

}  // namespace

void interrupt(::gloo::Context& context) { static_cast<GlooContext&>(context).interrupt(); }

std::shared_ptr<::gloo::transport::Device> make_device(const hvd_plugin_host& host,
                                                       const hvd_plugin_config& config) {
  ::gloo::transport::tcp::attr attributes;
  const char* interface = host.setting(host.host, "HOROVOD_GLOO_IFACE");
  if (interface != nullptr && *interface != '\0') {
    attributes.iface = interface;
  } else if (config.local_size == config.size) {
    attributes.hostname = "127.0.0.1";
  }
  const BlockedSigpipe blocked_sigpipe;  // inherited by the thread that the device starts
  return ::gloo::transport::tcp::CreateDevice(attributes);
}

Result<std::shared_ptr<::gloo::Context>> connect(const hvd_plugin_host& host,
                                                 std::shared_ptr<::gloo::transport::Device> device,
                                                 const std::string& name, int index, int size,
                                                 bool is_everyone, double timeout_seconds) {
  auto mesh = std::make_shared<GlooContext>(index, size, std::move(device));
  const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000));
  mesh->setTimeout(timeout);
  mesh->links().setTimeout(timeout);
  if (size == 1) return std::shared_ptr<::gloo::Context>(std::move(mesh));
  const std::string offered = offer_addresses(*mesh);
  std::vector<int32_t> all(static_cast<size_t>(is_everyone ? 0 : size));
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::string> records;
  const int code =
      exchange_records(host, name, index, size, offered, all, timeout_seconds, &records);
  if (code != HVD_OK || records.size() != static_cast<size_t>(size)) {
    return Status(code == HVD_OK ? Code::kInternal : static_cast<Code>(code),
                  cat("Gloo: not all members of a process set have come within ", timeout_seconds,
                      " seconds (HOROVOD_GLOO_TIMEOUT_SECONDS)"));
  }
  for (int other = 0; other < size; ++other) {
    if (other == index) continue;
    HVD_ASSIGN_OR_RETURN(
        const std::vector<char> address,
        take_address(records[static_cast<size_t>(other)], static_cast<size_t>(size), kLongest,
                     static_cast<size_t>(index)));
    mesh->links().getPair(other)->connect(address);
  }
  return std::shared_ptr<::gloo::Context>(std::move(mesh));
}

}  // namespace hvd::ops::gloo_backend
