#include "launcher/pmix/pmi_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <thread>
#include <utility>

#include "base/secrets/secret.h"
#include "base/text.h"
#include "net/packet_socket.h"
#include "net/socket_address.h"

namespace hvd::launcher {
namespace {

// The limit of one barrier and host: MPICH puts some 100 bytes for each rank.
constexpr size_t kMaxUnshared = 16 << 20;

bool write_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return false;
    text.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

// Answers to what a job of constant size cannot do.
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
  // Other users of the host see abstract names: this one says nothing about the job.
  std::array<std::byte, 16> random;
  fill_random(random);
  std::string name = cat("horovod-pmi-", to_hex(random));
  const auto address = net::numeric_address({net::Endpoint::Family::kUnix, cat("@", name), {}, 0});
  HVD_ASSIGN_OR_RETURN(UniqueFd listener, net::listen_on(*address));
  std::thread([this, listener = std::move(listener)] { accept(listener); }).detach();
  return name;
}

void PmiServer::accept(const UniqueFd& listener) {
  for (;;) {
    pollfd ready{listener.get(), POLLIN, 0};
    ::poll(&ready, 1, -1);
    auto socket =
        std::make_shared<UniqueFd>(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!*socket || !net::is_trusted_peer(socket->get())) continue;
    std::thread([this, socket] { serve(*socket); }).detach();
  }
}

void PmiServer::serve(const UniqueFd& socket) {
  Client client;
  std::string bytes;
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t size = ::read(socket.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;
    bytes.append(buffer.data(), static_cast<size_t>(size));
    for (;;) {
      const auto command = take_pmi_command(bytes);
      if (!command.ok()) return;
      if (!*command) break;
      const auto text = answer(client, **command);
      if (!text.ok() || !write_all(socket.get(), *text)) return;
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
    HVD_RETURN_IF_ERROR(wait_in_barrier(client));
    return std::string("cmd=barrier_out rc=0\n");
  }
  if (name == "finalize") {
    finish(client);
    return std::string("cmd=finalize_ack rc=0\n");
  }
  if (name == "abort")
    return std::string();  // the rank ends itself after this, and with it the job
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
  return cat("cmd=initack rc=0\ncmd=set size=", order_.size(), "\ncmd=set rank=", client.rank,
             "\ncmd=set debug=0\n");
}

std::string PmiServer::put(const Client& client, const PmiCommand& command) {
  const std::string key(command.value("key"));
  const std::string value(command.value("value"));
  const MutexLock lock(mutex_);
  Program& program = program_of(client);
  if (command.value("kvsname") != name_of(client) || key.empty() || key.size() > kMaxPmiKey ||
      value.size() > kMaxPmiValue || program.unshared.size() > kMaxUnshared) {
    return "cmd=put_result rc=-1 msg=refused\n";
  }
  program.unshared += cat(key, "=", value, "\n");
  program.values.insert_or_assign(key, value);
  return "cmd=put_result rc=0 msg=success\n";
}

std::string PmiServer::get(const Client& client, const PmiCommand& command) {
  const MutexLock lock(mutex_);
  const auto& values = program_of(client).values;
  const auto found = values.find(std::string(command.value("key")));
  if (found == values.end() || command.value("kvsname") != name_of(client))
    return "cmd=get_result rc=-1 msg=key_not_found value=unknown\n";
  return cat("cmd=get_result rc=0 msg=success value=", found->second, "\n");
}

// The last rank of this host exchanges with the other hosts, while the others wait for it.
Status PmiServer::wait_in_barrier(const Client& client) {
  MutexLock lock(mutex_);
  Program& program = program_of(client);
  const uint64_t number = program.barriers;
  if (++program.in_barrier < order_.ranks[order_.host].size()) {
    while (program.barriers == number) barrier_over_.wait(lock.native());
    return program.last;
  }
  const auto fence = fences_.of_all(cat("pmi/", name_of(client), "/", number));
  const std::string own = std::exchange(program.unshared, {});
  lock.unlock();
  const auto all = fences_.run(fence, own, store_, Deadline::never());
  if (all.ok()) events_.on_met();
  lock.lock();
  for (const std::string& line : split(all.ok() ? *all : std::string(), '\n')) {
    const size_t middle = line.find('=');
    if (middle == std::string::npos) continue;
    program.values.insert_or_assign(line.substr(0, middle), line.substr(middle + 1));
  }
  program.last = all.status();
  program.in_barrier = 0;
  ++program.barriers;
  barrier_over_.notify_all();
  return program.last;
}

void PmiServer::finish(const Client& client) {
  const MutexLock lock(mutex_);
  if (++program_of(client).in_finalize == order_.ranks[order_.host].size())
    programs_.erase(client.number);
}

std::string PmiServer::name_of(const Client& client) const {
  return cat(order_.job, "-", client.number);
}

PmiServer::Program& PmiServer::program_of(const Client& client) {
  const auto [found, is_new] = programs_.try_emplace(client.number);
  if (is_new) {
    const std::string mapping = pmi_mapping(order_.ranks);
    if (!mapping.empty()) found->second.values["PMI_process_mapping"] = mapping;
  }
  return found->second;
}

}  // namespace hvd::launcher
