// The launcher's package as the hosts get it: packed by gzip at the first host that wants it, and kept for the others.
// HostStartup owns it. Lives on the launch's loop, which it never blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "launcher/link/agent_link.h"
#include "launcher/package/own_package.h"
#include "net/asio.h"
#include "net/notification.h"

namespace hvd::launcher {

class PackageArchive {
 public:
  explicit PackageArchive(const net::asio::any_io_executor& executor)
      : executor_(executor), is_packed_(executor) {}

  // The parts for one host. They must not outlive this object.
  net::Task<Result<AgentLink::NextPart>> parts(std::shared_ptr<const OwnPackage> package);
  // Bytes that a host gets; 0 before the first one does.
  uint64_t packed_size() const { return packed_ && packed_->ok() ? (*packed_)->size() : 0; }

 private:
  net::Task<void> pack(std::shared_ptr<const OwnPackage> package);

  net::asio::any_io_executor executor_;
  net::Notification is_packed_;
  bool is_packing_ = false;
  std::optional<Result<std::string>> packed_;
};

}  // namespace hvd::launcher
