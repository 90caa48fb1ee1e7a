// This installation's Python package horovod with its library and plugins, in a form for other hosts: python/horovod,
// lib/libhorovod.so.1 and lib/horovod, which find each other as in a build. Reads files of this machine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/link/agent_link.h"
#include "launcher/protocol/host_job.h"
#include "launcher/protocol/protocol.h"
#include "launcher/protocol/staged_parts.h"
#include "net/asio.h"
#include "net/notification.h"

namespace hvd::launcher {

struct OwnPackage {
  PackageOffer offer;
  std::string list;                // package_list.h
  std::vector<std::string> files;  // paths on this machine, in the order of the list
};

// Reads the package next to `folder`, the folder of the launcher's program; null if package or library is missing.
// `has_program`: includes bin/horovodrun, for a job that runs it.
Result<std::shared_ptr<const OwnPackage>> read_own_package(const std::string& folder,
                                                           bool has_program = false);

// Returns a package that contains only one program of this machine, with this name.
Result<std::shared_ptr<const OwnPackage>> read_program_package(const std::string& path,
                                                               const std::string& name);

// The package in the form for hosts: packed by gzip when a host first needs it, and kept for other hosts. HostStartup
// and StackTool own one such object each. Lives on the launch's loop, and never blocks the loop.
class PackageArchive {
 public:
  explicit PackageArchive(const net::asio::any_io_executor& executor)
      : executor_(executor), is_packed_(executor) {}

  // Returns the parts for one host. This object must outlive the parts.
  net::Task<Result<AgentLink::NextPart>> parts(std::shared_ptr<const OwnPackage> package);
  // Returns the bytes sent to each host; 0 before the first host.
  uint64_t packed_size() const { return packed_ && packed_->ok() ? (*packed_)->size() : 0; }

 private:
  net::Task<void> pack(std::shared_ptr<const OwnPackage> package);

  net::asio::any_io_executor executor_;
  net::Notification is_packed_;
  bool is_packing_ = false;
  std::optional<Result<std::string>> packed_;
  std::shared_ptr<const OwnPackage> package_;  // set when packed_ is set
  std::vector<StagedEntry> files_;             // refer to package_ and packed_
};

// The py-spy of this machine. Agents use it, or a copy on their hosts, for Python stacks of ranks that provide none.
// Reads the program at the first request, and offers it once to each host. JobInspector owns this object. Lives on the
// launch's loop.
class StackTool {
 public:
  explicit StackTool(const net::asio::any_io_executor& executor) : archive_(executor) {}
  // Offers py-spy to a host. `host`: the host's number in the plan.
  void offer_to(int host, AgentLink& link);

 private:
  void read();

  PackageArchive archive_;
  bool is_read_ = false;
  std::shared_ptr<const OwnPackage> package_;  // null if this machine has no py-spy
  StackToolOffer offer_;
  std::set<int> hosts_;  // hosts that received the offer
};

}  // namespace hvd::launcher
