#include "mpi/job.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string_view>
#include <thread>

#include "base/machine_identity.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "mpi/api.h"
#include "ops/common/rounds.h"

namespace hvd::mpi {
namespace {

// Time for MPI_Finalize to send its message after all ranks are at the barrier.
constexpr std::chrono::milliseconds kGrace{100};
constexpr std::chrono::milliseconds kNoTime{0};
constexpr std::string_view kHere = "cmd=barrier_in\n";
constexpr std::string_view kLeaves = "cmd=finalize\n";

bool uses_processor(pthread_t thread) {
  clockid_t clock{};
  timespec before{}, after{};
  if (::pthread_getcpuclockid(thread, &clock) != 0) return false;
  ::clock_gettime(clock, &before);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  ::clock_gettime(clock, &after);
  const int64_t seconds = after.tv_sec - before.tv_sec;
  return seconds * 1'000'000'000 + after.tv_nsec - before.tv_nsec > 1'000'000;
}

bool is_ready(int fd, int milliseconds) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, milliseconds) > 0;
}

// Passes bytes from one descriptor to the other. Returns false at the end of the stream, or after an error.
bool pass(int from, int to) {
  char text[4096];
  const ssize_t size = ::read(from, text, sizeof text);
  return size > 0 && ::send(to, text, static_cast<size_t>(size), MSG_NOSIGNAL) == size;
}

// A proxy between MPI_Finalize and hydra's server. The proxy can send this rank's barrier message to the
// server in place of MPI_Finalize. The reply comes when all ranks have sent their messages, maybe after hours.
class FinalizeProxy {
 public:
  // `fd`: the server's descriptor for MPI_Finalize, which has not been called yet.
  explicit FinalizeProxy(int fd) : server_(::dup(fd)) {
    int both[2];
    if (!server_ || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) != 0) return;
    own_.reset(both[0]);
    is_between_ = ::dup2(both[1], fd) == fd;
    ::close(both[1]);
  }
  bool is_between() const { return is_between_; }
  // Returns true if MPI_Finalize sends bytes within this time, or closes its end.
  bool has_input(std::chrono::milliseconds time) const {
    return is_ready(own_.get(), static_cast<int>(time.count()));
  }
  // Passes messages in both directions, until one end is closed.
  void relay() const {
    for (;;) {
      pollfd both[] = {{server_.get(), POLLIN, 0}, {own_.get(), POLLIN, 0}};
      if (::poll(both, 2, -1) < 0) continue;
      if (both[0].revents != 0 && !pass(server_.get(), own_.get())) return;
      if (both[1].revents != 0 && !pass(own_.get(), server_.get())) return;
    }
  }
  // Sends the barrier message. Returns true if all ranks are at the barrier, but MPI_Finalize has sent nothing because
  // it is still closing connections. Otherwise relays all further messages, and returns false.
  bool is_hung() const {
    if (!send(kHere)) return false;
    bool has_come = false;
    for (;;) {
      pollfd both[] = {{server_.get(), POLLIN, 0}, {has_come ? -1 : own_.get(), POLLIN, 0}};
      if (::poll(both, 2, -1) < 0) continue;
      char text[64];
      if (both[1].revents != 0) {  // drop MPI_Finalize's message: the server has one
        if (::read(own_.get(), text, sizeof text) <= 0) return false;
        has_come = true;
      }
      if (both[0].revents == 0) continue;
      const ssize_t size = ::read(server_.get(), text, sizeof text);
      if (size <= 0) return false;
      if (!has_come) {
        if (!has_input(kGrace)) return true;
        char word[64];
        if (::read(own_.get(), word, sizeof word) <= 0) return false;
      }
      if (::send(own_.get(), text, static_cast<size_t>(size), MSG_NOSIGNAL) == size) relay();
      return false;
    }
  }
  // Announces the end of this process; otherwise a server treats its exit as a failure.
  void take_leave() const {
    char text[64];
    if (send(kLeaves)) static_cast<void>(::read(server_.get(), text, sizeof text));
  }

 private:
  bool send(std::string_view word) const {
    return ::send(server_.get(), word.data(), word.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(word.size());
  }

  UniqueFd server_, own_;
  bool is_between_ = false;
};

// An MPICH rank that has closed its connections sleeps until all ranks have closed theirs, and does not poll.
// A rank whose connection to the sleeping rank was incomplete then waits forever: seen over TCP with MPICH 4.0
// and UCX 1.13, also in programs without Horovod. watch() then ends the process without MPI_Finalize.
void watch(pthread_t ending, const std::atomic<bool>& has_ended, const FinalizeProxy& proxy,
           int status, std::chrono::milliseconds usual) {
  // MPI_Finalize sends its first message after its connections have ended.
  bool is_through = proxy.has_input(usual);
  while (!is_through && !has_ended && !uses_processor(ending))
    is_through = proxy.has_input(kNoTime);
  if (is_through) return proxy.relay();
  if (has_ended || !proxy.is_hung()) return;
  std::fprintf(stderr,
               "horovod: MPI_Finalize does not end though all ranks are there, as happens to MPICH "
               "over TCP between hosts; this process ends without it\n");
  std::fflush(nullptr);
  proxy.take_leave();
  ::_exit(status);
}

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

// Exchanges the MPI rank, the thread level and the machine of each rank.
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
  MpiJob job{*std::move(api)};
  job.rank = config.rank;
  job.version = versions[0];
  const std::string why = why_apart();
  HVD_RETURN_IF_ERROR(initialise(job.api, host));
  HVD_RETURN_IF_ERROR(meet(host, config, who, why, setting, &job));
  if (job.has_threads()) host.publish(host.host, "mpi-threads", const_cast<char*>(kYes));
  return job;
}

}  // namespace

void end_mpi(int (*finalize)(), bool may_never_end, int status, std::chrono::milliseconds usual) {
  const auto server = parse_int(environment_variable("PMI_FD").value_or(""));
  const auto has_ended = std::make_shared<std::atomic<bool>>(false);
  if (may_never_end && server) {
    const auto proxy = std::make_shared<const FinalizeProxy>(static_cast<int>(*server));
    if (proxy->is_between()) {
      std::thread([=, ending = ::pthread_self()] {
        watch(ending, *has_ended, *proxy, status, usual);
      }).detach();
    }
  }
  finalize();
  *has_ended = true;
}

Result<MpiJob> join_job(const hvd_plugin_host& host, const hvd_plugin_config& config,
                        const std::string& who, const char* setting) {
  auto job = join(host, config, who, setting);
  // With kUnavailable the start fails, as it must if the user has selected MPI. With another code, the runtime would
  // continue without MPI.
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
