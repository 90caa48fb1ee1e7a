// Sentences about the hosts of a job before its ranks start: versions that differ, copies of the launcher's files, one
// machine under several names, threads and cores of ranks. Pure.
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
  std::string folder{};        // of the package, on this machine
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

// A sentence for each machine that has more than one name. `machines[i]` is host_identity() of host i;
// empty: unknown.
std::vector<std::string> describe_same_machines(const std::vector<std::string>& hosts,
                                                const std::vector<std::string>& machines);

// `threads` of each host's ranks; 0: it sets nothing there. Empty when that is so on all.
std::string describe_thread_shares(const std::vector<std::string>& hosts,
                                   const std::vector<uint32_t>& threads);

// A sentence about hosts whose ranks share fewer cores than these hosts have: their names, each with "1 of 8". Empty
// without hosts.
std::string describe_binding(const std::vector<std::pair<std::string, std::string>>& hosts);

}  // namespace hvd::launcher
