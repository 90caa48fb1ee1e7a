// The environment of --stage-env: resolved once, for the hosts' oldest Python and glibc, and sent to all hosts. A
// restart and a host that joins later get the same files. Without --encrypt, each host gets the files from the host
// whose request came before. HostStartup owns this object for one launch; ResolvedEnvironment belongs to the job. Lives
// on the launch's loop, and never blocks the loop.
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

// The files of --stage-env that a launch of the job has resolved, and the hosts for which it has resolved them.
struct ResolvedEnvironment {
  std::string first_host{};
  // The request of `first_host`, but with the oldest Python and glibc of all hosts.
  EnvironmentWanted first{};
  // The host with the oldest glibc; empty: all hosts have the same glibc.
  std::string oldest_host{};
  std::shared_ptr<EnvironmentFiles> files{};  // null: not resolved
};

class StagedEnvironment {
 public:
  // `job`: the files from earlier launches; must outlive this object.
  StagedEnvironment(const net::asio::any_io_executor& executor, const LaunchSettings& settings,
                    ResolvedEnvironment& job);

  // Sets the number of hosts that will request the environment. Once all have requested it, the environment is
  // resolved.
  void expect(size_t hosts) {
    expected_ = hosts;
    asked_ = 0;
  }
  // Waits until the files are resolved. Returns the environment for a host with this Python.
  net::Task<Result<std::unique_ptr<EnvironmentFeed>>> offer(std::string host,
                                                            EnvironmentWanted wanted);
  // Ends the passing of files between hosts: a host that joins later gets the files from the launcher.
  void end_chain();
  // Returns the last component of the path of --stage-env.
  std::string name() const;
  // Call after offer(): the number of wheels, and the bytes of all files.
  size_t packages() const;
  uint64_t bytes() const;
  // Returns why the file cannot be resolved; empty without a failure.
  std::string failure() const;

 private:
  class Feed;
  net::Task<void> resolve();
  Status check(const std::string& host, const EnvironmentWanted& wanted);
  Result<std::unique_ptr<EnvironmentFeed>> feed_of(const std::string& host,
                                                   const Status& status) const;
  // Returns "Python 3.11 on x86_64", or other words for an archive that contains or names a Python.
  std::string describe(const EnvironmentWanted& wanted) const;
  Result<std::shared_ptr<EnvironmentFiles>> parse(const std::string& answer) const;

  net::asio::any_io_executor executor_;
  const std::string file_;  // the value of --stage-env; may be empty
  const bool may_build_;    // --allow-build
  const bool
      may_chain_;  // hosts pass the files on unencrypted; with --encrypt, the launcher sends them to each host
  ResolvedEnvironment& job_;
  size_t expected_ = 0, asked_ = 0;
  bool is_resolving_ = false;  // true also after the files are resolved
  net::Notification is_resolved_;
  std::optional<Result<std::shared_ptr<EnvironmentFiles>>> files_;
};

}  // namespace hvd::launcher
