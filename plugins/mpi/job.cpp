#include "mpi/job.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "base/machine_identity.h"
#include "base/text.h"
#include "mpi/ending.h"
#include "mpi/environment.h"
#include "ops/common/rounds.h"

namespace hvd::mpi {
namespace {

struct MpiProcess {
  decltype(&MPI_Finalize) finalize = nullptr;
  decltype(&MPI_Finalized) finalized = nullptr;
  bool spans_machines = false;
  bool failed = false;
};
constexpr const char* kProcessName = "mpi-process";

// The MPI of this plugin, or of another plugin that has initialised MPI and has published it.
struct PublishedProcess {
  MpiProcess own;
  std::atomic<MpiProcess*> used{&own};
};
PublishedProcess& published() {
  static PublishedProcess* const kPublished = new PublishedProcess;
  return *kPublished;
}
MpiProcess& process() { return *published().used.load(); }

void at_exit(int status, void*) {
  int ended = 0;
  if (process().failed || process().finalized(&ended) != MPI_SUCCESS || ended != 0) return;
  end_mpi(process().finalize, abi().may_never_end && process().spans_machines, status);
}

std::string version_of(const MpiApi& api) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  api.get_library_version(text, &length);
  std::string version(text);
  version = version.substr(0, version.find_first_of(",\n"));
  std::replace(version.begin(), version.end(), '\t', ' ');
  return version;
}

constexpr const char* kYes = "yes";

bool is_flag(const char* value) { return value != nullptr && *value != '\0' && *value != '0'; }

// Returns the identity of this machine. With HOROVOD_TEST_MACHINE a test simulates several machines.
std::string machine(const hvd_plugin_host& host) {
  const char* part = host.setting(host.host, "HOROVOD_TEST_MACHINE");
  auto identity = machine_identity();
  return cat(identity.ok() ? *identity : "", part == nullptr ? "" : part);
}

// Returns the error for ranks of the job that are not ranks of the same MPI world.
Status apart(const MpiJob& job, int world_size, int job_size, const std::string& why,
             const char* setting) {
  return failed_precondition(
      cat("the ", job_size, " ranks of this job are not one world of MPI, since ", job.version,
          " (", job.api.library, ") has a world of ", world_size, " here: ", why,
          "; start the ranks by ", abi().launchers,
          ", or name the library of their launcher's MPI in HOROVOD_MPI_LIBRARY, or set ", setting,
          "=gloo"));
}

// Exchanges ranks, hosts and the thread level that all ranks provide.
Status meet(const hvd_plugin_host& host, const hvd_plugin_config& config, const std::string& who,
            const std::string& why, const char* setting, MpiJob* job) {
  const MpiApi& api = job->api;
  int world_rank = 0, world_size = 1, threads = 0;
  api.comm_rank(api.handles.world, &world_rank);
  api.comm_size(api.handles.world, &world_size);
  api.query_thread(&threads);
  const Status status =
      world_size < config.size ? apart(*job, world_size, config.size, why, setting) : Status();
  HVD_ASSIGN_OR_RETURN(const auto records,
                       ops::Rounds(host, config)
                           .exchange(cat(who, "-world").c_str(), status,
                                     cat(world_rank, " ", threads, " ", machine(host))));
  job->threads = MPI_THREAD_MULTIPLE;
  for (const std::string& record : records) {
    std::vector<std::string> words = split(record, ' ');
    words.resize(3);
    job->world_ranks.push_back(static_cast<int>(parse_int(words[0]).value_or(0)));
    job->threads = std::min(job->threads, static_cast<int>(parse_int(words[1]).value_or(0)));
    job->machines.push_back(std::move(words[2]));
  }
  note_machines(
      std::any_of(job->machines.begin(), job->machines.end(),
                  [&](const std::string& each) { return each != job->machines.front(); }));
  std::vector<int> distinct = job->world_ranks;
  std::sort(distinct.begin(), distinct.end());
  if (std::adjacent_find(distinct.begin(), distinct.end()) != distinct.end()) {
    return apart(*job, world_size, config.size, why, setting);
  }
  return {};
}

Result<MpiJob> join(const hvd_plugin_host& host, const hvd_plugin_config& config,
                    const std::string& who, const char* setting) {
  // Check before MPI starts: otherwise the other ranks would wait in MPI_Init for a rank that does not start it.
  auto api = open_api(wanted_library());
  const Status found = api.ok() ? judge_environment() : api.error();
  HVD_ASSIGN_OR_RETURN(const auto versions, ops::Rounds(host, config)
                                                .exchange(cat(who, "-library").c_str(), found,
                                                          found.ok() ? version_of(*api) : ""));
  for (size_t rank = 0; rank < versions.size(); ++rank) {
    if (versions[rank] == versions[0]) continue;
    return failed_precondition(cat("rank 0 has ", versions[0], " and rank ", rank, " has ",
                                   versions[rank],
                                   ": all ranks need one MPI; HOROVOD_MPI_LIBRARY "
                                   "may name its library"));
  }
  MpiJob job;
  job.api = *std::move(api);
  job.rank = config.rank;
  job.version = versions[0];
  const std::string why = why_apart();
  HVD_RETURN_IF_ERROR(initialise(job.api, host));
  HVD_RETURN_IF_ERROR(meet(host, config, who, why, setting, &job));
  if (job.has_threads()) host.publish(host.host, "mpi-threads", const_cast<char*>(kYes));
  return job;
}

}  // namespace

Result<MpiJob> join_job(const hvd_plugin_host& host, const hvd_plugin_config& config,
                        const std::string& who, const char* setting) {
  auto job = join(host, config, who, setting);
  // kUnavailable fails the start for a user who has selected MPI; another code would silently skip
  // MPI.
  if (!job.ok()) return unavailable(job.error().message());
  return job;
}

Status initialise(const MpiApi& api, const hvd_plugin_host& host) {
  if (is_over(api)) {
    return failed_precondition("MPI was finalized in this process and cannot be used again");
  }
  int yes = 0;
  api.initialized(&yes);
  if (yes != 0) {
    auto* first = static_cast<MpiProcess*>(host.lookup(host.host, kProcessName));
    if (first != nullptr) published().used = first;
    if (process().finalize != nullptr) host.publish(host.host, kProcessName, &process());
    return {};
  }
  const bool plain = is_flag(host.setting(host.host, "HOROVOD_MPI_THREADS_DISABLE"));
  int given = 0;
  const int code = api.init_thread(nullptr, nullptr,
                                   plain ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE, &given);
  if (code != MPI_SUCCESS) return unavailable(cat("MPI does not start: ", describe(api, code)));
  process().finalize = api.finalize;
  process().finalized = api.finalized;
  ::on_exit(&at_exit, nullptr);
  host.publish(host.host, kProcessName, &process());
  return {};
}

void note_machines(bool are_several) { process().spans_machines |= are_several; }

void abandon_mpi() { process().failed = true; }

bool is_over(const MpiApi& api) {
  int ended = 0;
  return api.finalized(&ended) == MPI_SUCCESS && ended != 0;
}

std::string describe(const MpiApi& api, int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (api.error_string(code, text, &length) != MPI_SUCCESS) return cat("error ", code);
  return text;
}

}  // namespace hvd::mpi
