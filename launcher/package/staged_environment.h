// The environment of --stage-env: resolved once, for the oldest Python and glibc of the hosts, and sent to all. A
// restart and a host that joins later get the same files. Hosts get them from each other, in the order in which they
// want them. HostStartup owns it for one launch; ResolvedEnvironment belongs to the job. Lives on the launch's loop,
// which it never blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "launcher/link/agent_link.h"
#include "launcher/plan/launch_settings.h"
#include "launcher/protocol/protocol.h"
#include "net/asio.h"
#include "net/notification.h"

namespace hvd::launcher {

class EnvironmentFiles;

// The files of --stage-env that a launch of the job has resolved, and for which hosts.
struct ResolvedEnvironment {
  std::string first_host{};
  EnvironmentWanted first{};  // of that host, with the oldest Python and glibc of all
  std::string oldest_host{};  // empty: all have the same glibc
  std::shared_ptr<EnvironmentFiles> files{};  // null: none are resolved
};

class StagedEnvironment {
 public:
  // `job`: of earlier launches; outlives this object.
  StagedEnvironment(const net::asio::any_io_executor& executor, const LaunchSettings& settings,
                    ResolvedEnvironment& job);

  // The number of hosts that will ask. The file is resolved when all have asked, and only once.
  void expect(size_t hosts) {
    expected_ = hosts;
    asked_ = 0;
  }
  // The environment for a host with this Python.
  net::Task<Result<std::unique_ptr<EnvironmentFeed>>> offer(std::string host,
                                                            EnvironmentWanted wanted);
  // The hosts stop passing the files on: one that joins later gets them from the launcher.
  void end_chain();
  // The last part of the file's name.
  std::string name() const;
  // After offer(): wheels, and the bytes of all files.
  size_t packages() const;
  uint64_t bytes() const;
  // Why the file cannot be resolved, or nothing.
  std::string failure() const;

 private:
  class Feed;
  net::Task<void> resolve();
  Status check(const std::string& host, const EnvironmentWanted& wanted);
  Result<std::unique_ptr<EnvironmentFeed>> feed_of(const std::string& host,
                                                   const Status& status) const;
  // "Python 3.11 on x86_64"; an archive brings its own Python, or names it.
  std::string describe(const EnvironmentWanted& wanted) const;
  Result<std::shared_ptr<EnvironmentFiles>> parse(const std::string& answer) const;

  net::asio::any_io_executor executor_;
  const std::string file_;  // as --stage-env names it, or empty
  const bool may_build_;    // --allow-build
  const bool
      may_chain_;  // hosts pass the files on, in clear; with --encrypt each host has them from the launcher
  ResolvedEnvironment& job_;
  size_t expected_ = 0, asked_ = 0;
  bool is_resolving_ = false;  // or resolved
  net::Notification is_resolved_;
  std::optional<Result<std::shared_ptr<EnvironmentFiles>>> files_;
};

}  // namespace hvd::launcher
