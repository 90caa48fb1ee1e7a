#include "launcher/pmix/pmi_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "base/secrets/secret.h"
#include "base/text.h"
#include "net/packet_socket.h"
#include "net/socket_address.h"

namespace hvd::launcher {
namespace {

// The limit of a host's values at one barrier: MPICH puts about 100 bytes for each rank.
constexpr size_t kMaxUnshared = 16 << 20;

bool send_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return false;
    text.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

// Returns false if the system cannot start another thread.
template <typename F>
bool start_thread(F run) {
  try {
    std::thread(std::move(run)).detach();
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

// Returns the reply to a command that a job of constant size does not support; empty for other commands.
std::string refusal(const std::string& command) {
  constexpr std::array<std::pair<const char*, const char*>, 4> kRefused = {
      {{"spawn", "spawn_result"},
       {"publish_name", "publish_result"},
       {"unpublish_name", "unpublish_result"},
       {"lookup_name", "lookup_result"}}};
  for (const auto& [name, result] : kRefused) {
    if (command == name) return cat("cmd=", result, " rc=-1 msg=horovodrun_does_not_serve_it\n");
  }
  return {};
}

}  // namespace

Result<std::string> PmiServer::listen() {
  // The name is random, so that no other user can bind it first.
  std::array<std::byte, 16> random;
  fill_random(random);
  std::string name = cat("horovod-pmi-", to_hex(random));
  const auto address = net::numeric_address({net::Endpoint::Family::kUnix, cat("@", name), {}, 0});
  HVD_ASSIGN_OR_RETURN(UniqueFd listener, net::listen_on(*address));
  const auto shared = std::make_shared<const UniqueFd>(std::move(listener));
  if (!start_thread([this, shared] { accept(*shared); }))
    return unavailable("this host has no thread left (a limit of processes)");
  return name;
}

void PmiServer::accept(const UniqueFd& listener) {
  for (;;) {
    pollfd ready{listener.get(), POLLIN, 0};
    ::poll(&ready, 1, -1);
    const auto socket =
        std::make_shared<const UniqueFd>(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!*socket) {
      // Pause, because poll() would report the waiting connection again at once.
      const bool lacks = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
      if (lacks) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    if (!net::is_trusted_peer(socket->get())) continue;
    if (!start_thread([this, socket = std::move(socket)]() mutable { serve(std::move(socket)); })) {
      report_once(
          "MPI_Init of a rank fails: this host has no thread left for its connection; raise the "
          "limit of processes");
    }
  }
}

void PmiServer::serve(Socket socket) {
  Client client{std::move(socket)};
  if (const Status status = converse(client); !status.ok() && !is_failed(client)) {
    report_once(cat("a connection ",
                    client.rank < 0 ? std::string() : cat("of rank ", client.rank, " "),
                    "to PMI-1 is closed, so that MPI fails there: ", status.message(),
                    "; --no-pmix leaves PMI-1 out"));
  }
  on_closed(client);
}

Status PmiServer::converse(Client& client) {
  std::string bytes;
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t size = ::read(client.socket->get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return {};
    bytes.append(buffer.data(), static_cast<size_t>(size));
    for (;;) {
      HVD_ASSIGN_OR_RETURN(const auto command, take_pmi_command(bytes));
      if (!command) break;
      HVD_ASSIGN_OR_RETURN(const std::string text, answer(client, *command));
      if (!send_all(client.socket->get(), text)) return {};
    }
  }
}

Result<std::string> PmiServer::answer(Client& client, const PmiCommand& command) {
  const std::string& name = command.name;
  if (name == "initack") return admit(client, command);
  if (client.rank < 0) return failed_precondition("a client of PMI-1 first says which rank it is");
  if (name == "init") {
    return std::string(command.value("pmi_version") == "1"
                           ? "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
                           : "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n");
  }
  if (name == "get_maxes") {
    return cat("cmd=maxes kvsname_max=256 keylen_max=", kMaxPmiKey, " vallen_max=", kMaxPmiValue,
               " rc=0\n");
  }
  if (name == "get_appnum") return std::string("cmd=appnum appnum=0 rc=0\n");
  if (name == "get_universe_size") {
    return cat("cmd=universe_size size=", order_.size(), " rc=0\n");
  }
  if (name == "get_my_kvsname") return cat("cmd=my_kvsname kvsname=", name_of(client), " rc=0\n");
  if (name == "put") return put(client, command);
  if (name == "get") return get(client, command);
  if (name == "barrier_in") {
    HVD_RETURN_IF_ERROR(enter_barrier(client));
    return std::string();  // meet() sends the reply to all clients
  }
  if (name == "finalize") {
    HVD_RETURN_IF_ERROR(finish(client));
    return std::string("cmd=finalize_ack rc=0\n");
  }
  // The rank ends itself after this command, and thereby the job.
  if (name == "abort") return std::string();
  std::string refused = refusal(name);
  if (refused.empty()) return invalid_argument("PMI-1 has no such command");
  return refused;
}

Result<std::string> PmiServer::admit(Client& client, const PmiCommand& command) {
  const auto rank = parse_int(command.value("pmiid"));
  const std::vector<int>& own = order_.ranks[order_.host];
  if (client.rank >= 0 || !rank || std::ranges::find(own, *rank) == own.end())
    return invalid_argument("this is no rank of this host");
  client.rank = static_cast<int>(*rank);
  client.number = events_.on_init(client.rank);
  {
    const MutexLock lock(mutex_);
    auto& program = programs_[client.number];
    if (!program) {
      program = std::make_shared<Program>();
      const std::string mapping = pmi_mapping(order_.ranks);
      if (!mapping.empty()) program->values["PMI_process_mapping"] = mapping;
    }
    client.program = program;
  }
  return cat("cmd=initack rc=0\ncmd=set size=", order_.size(), "\ncmd=set rank=", client.rank,
             "\ncmd=set debug=0\n");
}

std::string PmiServer::put(const Client& client, const PmiCommand& command) {
  const std::string key(command.value("key"));
  const std::string value(command.value("value"));
  const MutexLock lock(mutex_);
  Program& program = *client.program;
  // In the data for other hosts, a key ends at "=".
  if (command.value("kvsname") != name_of(client) || key.empty() || key.size() > kMaxPmiKey ||
      key.find('=') != std::string::npos || value.size() > kMaxPmiValue ||
      program.unshared.size() > kMaxUnshared) {
    return "cmd=put_result rc=-1 msg=refused\n";
  }
  program.unshared += cat(key, "=", value, "\n");
  program.values.insert_or_assign(key, value);
  return "cmd=put_result rc=0 msg=success\n";
}

std::string PmiServer::get(const Client& client, const PmiCommand& command) {
  const MutexLock lock(mutex_);
  const auto& values = client.program->values;
  const auto found = values.find(std::string(command.value("key")));
  if (found == values.end() || command.value("kvsname") != name_of(client))
    return "cmd=get_result rc=-1 msg=key_not_found value=unknown\n";
  return cat("cmd=get_result rc=0 msg=success value=", found->second, "\n");
}

// When the last rank of this host enters, a separate thread enters the fence between hosts, so that each connection is
// still read, and the end of a program is noticed.
Status PmiServer::enter_barrier(const Client& client) {
  MutexLock lock(mutex_);
  Program& program = *client.program;
  if (client.has_ended || is_waiting(client))
    return failed_precondition("a client of PMI-1 is in a barrier or has finalized");
  if (!program.failure.empty()) {
    report_failure(program);
    return unavailable(program.failure);
  }
  program.waiting.push_back(client.socket);
  if (program.waiting.size() < order_.ranks[order_.host].size()) return {};
  const auto fence = fences_.of_all(fence_of(client, program.barriers));
  if (order_.ranks.size() == 1) {
    lock.unlock();
    meet(program, fence);
    return {};
  }
  program.is_exchanging = true;
  if (start_thread([this, held = client.program, fence] { meet(*held, fence); })) return {};
  program.is_exchanging = false;
  return unavailable("this host has no thread left; raise the limit of processes");
}

void PmiServer::meet(Program& program, const PmixFences::Fence& fence) {
  MutexLock lock(mutex_);
  const std::string own = std::exchange(program.unshared, {});
  lock.unlock();
  const auto all = fences_.run(fence, own, store_, Deadline::never());
  lock.lock();
  program.is_exchanging = false;
  ++program.barriers;
  if (!all.ok()) fail(program, cat("the exchange with other hosts: ", all.status().message()));
  for (const std::string& line : split(all.ok() ? *all : std::string(), '\n')) {
    const size_t middle = line.find('=');
    if (middle == std::string::npos) continue;
    if (middle == 0)
      fail(program, line.substr(1));
    else
      program.values.insert_or_assign(line.substr(0, middle), line.substr(middle + 1));
  }
  if (!program.failure.empty()) return;
  const auto waiting = std::exchange(program.waiting, {});
  lock.unlock();
  events_.on_met();
  for (const Socket& socket : waiting) send_all(socket->get(), "cmd=barrier_out rc=0\n");
}

Status PmiServer::finish(Client& client) {
  const MutexLock lock(mutex_);
  if (is_waiting(client)) return failed_precondition("a client of PMI-1 is in a barrier");
  count_end(client);
  return {};
}

bool PmiServer::is_waiting(const Client& client) const {
  const std::vector<Socket>& waiting = client.program->waiting;
  return std::ranges::find(waiting, client.socket) != waiting.end();
}

bool PmiServer::is_failed(const Client& client) {
  const MutexLock lock(mutex_);
  return client.program && !client.program->failure.empty();
}

void PmiServer::on_closed(Client& client) {
  if (!client.program) return;
  MutexLock lock(mutex_);
  Program& program = *client.program;
  if (client.has_ended) return;
  count_end(client);
  if (!program.failure.empty()) return;
  const uint64_t next = program.barriers + (program.is_exchanging ? 1 : 0);
  const std::string why =
      cat("rank ", client.rank, " has left its program of MPI before MPI_Finalize");
  fail(program, why);
  lock.unlock();
  client.socket.reset();
  // Pass the failure to the next barrier, where other hosts would otherwise wait for this host. A line without a key
  // marks a failure.
  if (order_.ranks.size() > 1)
    (void)fences_.run(fences_.of_all(fence_of(client, next)), cat("=", why, "\n"), store_,
                      Deadline::never());
}

void PmiServer::count_end(Client& client) {
  if (std::exchange(client.has_ended, true)) return;
  if (++client.program->ended == order_.ranks[order_.host].size()) programs_.erase(client.number);
}

// Records why the program has failed, and closes the connections that wait in a barrier: PMI-1 cannot pass a reason to
// them.
void PmiServer::fail(Program& program, const std::string& why) {
  if (!program.failure.empty()) return;
  program.failure = why;
  const auto waiting = std::exchange(program.waiting, {});
  if (!waiting.empty()) report_failure(program);
  for (const Socket& socket : waiting) ::shutdown(socket->get(), SHUT_RDWR);
}

void PmiServer::report_failure(Program& program) {
  if (!std::exchange(program.is_failure_reported, true))
    events_.on_failure(cat("a barrier of MPI fails, as in MPI_Init: ", program.failure));
}

// Reports only the first failure, because a program may try again without end.
void PmiServer::report_once(const std::string& sentence) {
  const MutexLock lock(mutex_);
  if (!std::exchange(has_reported_, true)) events_.on_failure(sentence);
}

std::string PmiServer::name_of(const Client& client) const {
  return cat(order_.job, "-", client.number);
}

std::string PmiServer::fence_of(const Client& client, uint64_t barrier) const {
  return cat("pmi/", name_of(client), "/", barrier);
}

}  // namespace hvd::launcher
