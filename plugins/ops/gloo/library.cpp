#include "ops/gloo/library.h"

#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "base/text.h"
#include "ops/common/blocked_sigpipe.h"
#include "ops/gloo/addresses.h"
#include "ops/gloo/interruptible_links.h"

namespace hvd::ops::gloo_backend {
namespace {

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

// How the others reach this one, each by an address of its own.
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
  const BlockedSigpipe blocked_sigpipe;  // for the thread that the device starts
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
  std::vector<int32_t> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::string> records;
  const int code = host.store_exchange(
      host.host, name.c_str(), index, size, offered.data(), offered.size(), all.data(),
      is_everyone ? 0 : size, timeout_seconds,
      [](void* to, const void* bytes, size_t count) {
        static_cast<std::vector<std::string>*>(to)->emplace_back(static_cast<const char*>(bytes),
                                                                 count);
      },
      &records);
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
