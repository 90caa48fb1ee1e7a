#include "runtime/bootstrap/rank_claim.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "base/proc_file.h"
#include "base/secrets/hmac.h"
#include "base/secrets/secret.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "net/packet_socket.h"
#include "runtime/bootstrap/launcher_detection.h"

namespace hvd::runtime {
namespace {

NamedRank rank_of(std::string words, const Variables& variables,
                  std::initializer_list<const char*> names) {
  NamedRank rank{std::move(words), {}};
  for (const char* name : names) rank.key += cat(name, "=", variables(name).value_or(""), "\n");
  return rank;
}

// Returns the rank and store in the variables of an agent, of Horovod's launcher, or of the user; may be empty.
std::optional<NamedRank> rank_of_ours(const Variables& variables) {
  if (!variables("HOROVOD_STORE") && !variables("HOROVOD_GLOO_RENDEZVOUS_ADDR")) return {};
  const auto process = variables("HOROVOD_ELASTIC_PROCESS");
  const auto rank = variables("HOROVOD_RANK");
  if (!process && !rank) return {};
  return rank_of(
      rank ? cat("rank ", *rank) : cat("process ", *process, " of the elastic job"), variables,
      {"HOROVOD_STORE", "HOROVOD_JOB_SECRET", "HOROVOD_JOB", "HOROVOD_RANK", "HOROVOD_SIZE",
       "HOROVOD_LOCAL_RANK", "HOROVOD_HOSTNAME", "HOROVOD_ELASTIC_PROCESS",
       "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"});
}

// Returns whether this process has variables of two launchers: mpirun or torchrun inside a rank of this project. The
// bootstrap's error names both. Programs and this project's agents also set torch.distributed's variables.
bool has_two_launchers() {
  if (!environment_variable("HOROVOD_RANK")) return false;
  const auto other = foreign_place();
  return other && (other->bootstrap != kTorchBootstrap || is_worker_of_torchrun());
}

bool is_above_one(const std::optional<std::string>& number) {
  return number && parse_int(*number).value_or(0) > 1;
}

// Time limit for the agent's reply: a stopped agent must not stop its ranks.
constexpr int kAgentAnswerMs = 1000;
constexpr int kMostTries = 50;
constexpr int kPauseMs = 20;

// Connects to the agent with this process id. Any user can bind such a name, so the process id that
// the kernel reports is checked.
UniqueFd connect_to_agent(int64_t pid, const std::vector<std::string>& names) {
  const std::string prefix = rendezvous::world_report_prefix(pid);
  for (const std::string& name : names) {
    if (!name.starts_with(prefix)) continue;
    auto agent = net::connect_to_listener(name, SOCK_SEQPACKET);
    // Try again if the agent's queue of connections is full, because it starts many ranks.
    for (int tries = 0; agent && !agent->socket && tries < kMostTries; ++tries) {
      ::poll(nullptr, 0, kPauseMs);
      agent = net::connect_to_listener(name, SOCK_SEQPACKET);
    }
    if (agent && agent->pid == pid) return std::move(agent->socket);
  }
  return {};
}

}  // namespace

bool is_ancestor(int64_t pid) {
  pid_t each = ::getppid();
  for (int level = 0; level < kMostLevels && each > 1; ++level, each = parent_of(each)) {
    if (each == pid) return true;
  }
  return false;
}

std::optional<NamedRank> named_rank(const Variables& variables) {
  if (auto ours = rank_of_ours(variables)) return ours;
  if (variables("HOROVOD_RANK") || variables("HOROVOD_STORE")) return {};
  if (to_lower(trim(variables("HOROVOD_BOOTSTRAP").value_or(""))) == "none") return {};
  if (is_above_one(variables("WORLD_SIZE")) && variables("RANK") && variables("MASTER_PORT")) {
    return rank_of(cat("rank ", *variables("RANK")), variables,
                   {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"});
  }
  // Ranks of a hydra inside a PMIx rank inherit the outer variables, and hydra's variables do not name a job.
  if (variables("PMI_FD")) return {};
  if (variables("PMIX_NAMESPACE") && variables("PMIX_RANK")) {
    return rank_of(cat("rank ", *variables("PMIX_RANK")), variables,
                   {"PMIX_NAMESPACE", "PMIX_RANK"});
  }
  if (is_above_one(variables("SLURM_STEP_NUM_TASKS")) && variables("SLURM_PROCID")) {
    return rank_of(cat("rank ", *variables("SLURM_PROCID")), variables,
                   {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "PMI_RANK", "PMI_SIZE"});
  }
  return {};
}

Result<RankClaim> RankClaim::take() {
  RankClaim claim;
  if (has_two_launchers() || is_in_shell_of_step()) return claim;
  const auto rank = named_rank(environment_variable);
  if (!rank) return claim;
  const std::string name = cat("horovod-rank/", to_hex(sha256(as_bytes(rank->key))).substr(0, 32));
  {
    const NoFork no_fork;
    auto listener = net::listen_for_packets(name);
    if (listener.ok()) {
      claim.listener_ = GuardedFd(*std::move(listener));
      return claim;
    }
  }
  const auto holder = net::connect_to_listener(name, SOCK_SEQPACKET);
  if (holder && !holder->socket) {
    // The holder's queue is full: the holder never accepts, so each refused process leaves a connection in the queue.
    return failed_precondition(
        cat("another process of this host is ", rank->words,
            " of this job already, by the same variables of the launcher, and has refused many "
            "processes: only one process can be that rank; start each process as a rank of its own "
            "by the launcher (-np), and call hvd.init() below `if __name__ == \"__main__\":`"));
  }
  // Any user who knows the name can bind it, so check the holder's user.
  if (!holder || holder->pid == ::getpid() || holder->uid != ::geteuid()) return claim;
  if (is_ancestor(holder->pid)) {
    return failed_precondition(
        cat("this process is a child of ", rank->words, " (process ", holder->pid,
            "), which has called hvd.init(): only one process can be that rank; call hvd.init() "
            "below `if __name__ == \"__main__\":`, so that children of multiprocessing, which "
            "import the program again, leave it out, or call hvd.shutdown() in the parent before "
            "it starts the child"));
  }
  return failed_precondition(
      cat("another process of this host (process ", holder->pid, ") is ", rank->words,
          " of this job already, by the same variables of the launcher: only one process can be "
          "that rank; start each process as a rank of its own by the launcher (-np)"));
}

void notify_agent(const rendezvous::WorldReport& report) {
  const auto names = net::listening_names(rendezvous::kWorldReportNames);
  pid_t pid = ::getppid();
  for (int level = 0; level < kMostLevels && pid > 1; ++level, pid = parent_of(pid)) {
    const UniqueFd agent = connect_to_agent(pid, names);
    if (!agent) continue;
    const auto sent = net::send_packet(agent.get(), encode(report), {}, "the agent");
    if (!sent.ok() || !*sent) return;
    pollfd answer{agent.get(), POLLIN, 0};
    ::poll(&answer, 1, kAgentAnswerMs);
    return;
  }
}

}  // namespace hvd::runtime
