// Compares the versions of Python and of packages between hosts, and describes the differences. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace hvd::launcher {

// {"Python", "3.11.2"}, {"horovod", "1.0"}; what a host lacks is not named.
using Versions = std::vector<std::pair<std::string, std::string>>;

// A sentence for each host whose Python or horovod (major and minor number) is not that of most
// hosts, or of the first where no version is most hosts'. A host that was not asked has none.
std::vector<std::string> describe_differences(const std::vector<std::string>& hosts,
                                              const std::vector<Versions>& versions);

// The hosts whose ranks use a copy of files of the launcher.
struct CopyHolders {
  std::vector<std::string> hosts{};
  std::vector<std::string> receivers{};  // those of them that got the copy for this job
};

// The use of the launcher's package.
struct PackageUse {
  CopyHolders copies{};
  std::string version{};
  bool is_everywhere = false;  // --ship
  uint64_t bytes_sent = 0;     // to each receiver
};

// One sentence. `use.copies.hosts` is not empty.
std::string describe_package_use(const PackageUse& use);

// The use of the environment of --stage-env.
struct EnvironmentUse {
  std::string file{};   // its name
  size_t packages = 0;  // 0: it is an archive
  uint64_t bytes = 0;   // to each receiver
  CopyHolders copies{};
};

// One sentence. `use.copies.hosts` is not empty.
std::string describe_environment_use(const EnvironmentUse& use);

}  // namespace hvd::launcher
