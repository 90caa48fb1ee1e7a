// The Python package horovod of this build or installation with its library and plugins, as it can be sent to hosts:
// python/horovod, lib/libhorovod.so.1 and lib/horovod, which find each other as in a build. Reads files of this machine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/link/agent_link.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/staged_parts.h"
#include "net/asio.h"
#include "net/notification.h"

namespace hvd::launcher {

struct OwnPackage {
  PackageOffer offer;
  std::string list;                // package_list.h
  std::vector<std::string> files;  // on this machine, in the order of the list
};

// `folder`: of the launcher's program. Null where the package or the library is not beside it. `has_program`: with
// bin/horovodrun, for a job that runs it.
Result<std::shared_ptr<const OwnPackage>> read_own_package(const std::string& folder,
                                                           bool has_program = false);

// One program of this machine, as the only file of a package, under this name.
Result<std::shared_ptr<const OwnPackage>> read_program_package(const std::string& path,
                                                               const std::string& name);

// The package as the hosts get it: packed by gzip at the first host that wants it, and kept for the others.
// HostStartup owns it. Lives on the launch's loop, which it never blocks.
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
  std::shared_ptr<const OwnPackage> package_;  // once it is packed, as the next one
  std::vector<StagedEntry> files_;             // refer to both
};

}  // namespace hvd::launcher
