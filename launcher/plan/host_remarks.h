// Messages about the hosts of a job before its ranks start: different versions of Python or horovod, copies of
// the package, several names for one machine, and the threads and cores of ranks. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace hvd::launcher {

// One host's software, for example {"Python", "3.11.2"} and {"horovod", "1.0"}. Omits missing software.
using Versions = std::vector<std::pair<std::string, std::string>>;

// Returns a sentence for each host whose Python or horovod (major and minor number) differs from the most frequent
// version. Among equally frequent versions, takes the first one. Omits hosts that were not tested.
std::vector<std::string> describe_differences(const std::vector<std::string>& hosts,
                                              const std::vector<Versions>& versions);

// The hosts whose ranks use a copy of the launcher's files.
struct CopyHolders {
  std::vector<std::string> hosts{};
  std::vector<std::string> receivers{};  // hosts to which the copy was sent for this job
};

// The ranks' use of the launcher's package.
struct PackageUse {
  CopyHolders copies{};
  std::string version{};
  std::string folder{};        // folder of the package, on this machine
  bool is_everywhere = false;  // --ship
  uint64_t bytes_sent = 0;     // bytes that each receiver gets
};

// Returns one sentence. `use.copies.hosts` must not be empty.
std::string describe_package_use(const PackageUse& use);

// The ranks' use of the environment of --stage-env.
struct EnvironmentUse {
  std::string file{};   // name of the environment's file
  size_t packages = 0;  // number of packages; 0: the environment is an archive
  uint64_t bytes = 0;   // bytes that each receiver gets
  CopyHolders copies{};
};

// Returns one sentence. `use.copies.hosts` must not be empty.
std::string describe_environment_use(const EnvironmentUse& use);

// Returns a sentence for each machine that has several names in the job. `machines[i]` is host_identity() of host i,
// or empty if unknown.
std::vector<std::string> describe_same_machines(const std::vector<std::string>& hosts,
                                                const std::vector<std::string>& machines);

// `threads[i]`: threads of each rank on host i; 0: not set there. Returns an empty text if no host has a number.
std::string describe_thread_shares(const std::vector<std::string>& hosts,
                                   const std::vector<uint32_t>& threads);

// The places of one host's ranks, from its agent.
struct HostBindings {
  std::string host{};
  std::vector<int> ranks{};
  std::vector<std::string> lines{};  // one for each rank; otherwise, the host is omitted
};

// Returns a line for each rank; for several hosts that are alike, a line for each local rank.
std::vector<std::string> describe_bindings(const std::vector<HostBindings>& hosts);

// Returns a sentence about hosts whose ranks are bound to fewer cores than the hosts have. `hosts`: names, each with a
// text like "1 of 8"; if empty, returns an empty text.
std::string describe_binding(const std::vector<std::pair<std::string, std::string>>& hosts);

}  // namespace hvd::launcher
