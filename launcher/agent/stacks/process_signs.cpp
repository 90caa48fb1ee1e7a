#include "launcher/agent/stacks/process_signs.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/proc_file.h"
#include "base/text.h"
#include "launcher/agent/host/process_connections.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

// Maximum number of threads examined per process.
constexpr size_t kMaxThreads = 1000;

std::string variable_of(pid_t pid, std::string_view name) {
  const std::string environment = read_proc_file(cat("/proc/", pid, "/environ"));
  const std::string beginning = cat(name, "=");
  for (const std::string& variable : split(environment, '\0')) {
    if (variable.starts_with(beginning)) return variable.substr(beginning.size());
  }
  return {};
}

// Returns whether a process has a TCP connection with this port at either end.
bool is_connected_at(pid_t pid, uint16_t port) {
  std::array<char, 24> end_text{};
  std::snprintf(end_text.data(), end_text.size(), ":%04X", static_cast<unsigned>(port));
  const std::string_view end(end_text.data());
  return std::ranges::any_of(connections_of(pid), [&](const auto& connection) {
    return connection.first.ends_with(end) || connection.second.ends_with(end);
  });
}

}  // namespace

WaitSigns wait_signs(pid_t pid) {
  WaitSigns signs;
  std::error_code error;
  size_t count = 0;
  for (fs::directory_iterator at(cat("/proc/", pid, "/task"), error), end;
       !error && at != end && ++count <= kMaxThreads; at.increment(error)) {
    signs.threads.emplace(trim(read_proc_file((at->path() / "comm").string())));
  }
  signs.channel = trim(read_proc_file(cat("/proc/", pid, "/wchan")));
  signs.is_in_io = is_io(read_proc_file(cat("/proc/", pid, "/syscall")));
  std::ifstream maps(cat("/proc/", pid, "/maps"));
  bool has_jax = false, has_torch = false;
  for (std::string line; std::getline(maps, line);) {
    signs.has_mpi |= line.find("/libmpi.so") != std::string::npos ||
                     line.find("/libmpich.so") != std::string::npos;
    has_torch |= line.find("/libtorch_cpu.so") != std::string::npos;
    has_jax |= line.find("/jaxlib/") != std::string::npos;
  }
  // jax.distributed communicates with its coordinator by gRPC.
  signs.has_jax = has_jax && std::ranges::any_of(signs.threads, [](const std::string& name) {
                    return name.starts_with("grpc_");
                  });
  // Each rank of a process group is connected to the group's store. Since PyTorch 2, thread names identify a group.
  const auto is_of_group = [](const std::string& name) {
    return name.starts_with("pt_gloo") || name.starts_with("pt_nccl");
  };
  if (has_torch && std::ranges::none_of(signs.threads, is_of_group)) {
    const auto port = parse_int(variable_of(pid, "MASTER_PORT"));
    signs.has_torch_store = port && *port > 0 && *port <= UINT16_MAX &&
                            is_connected_at(pid, static_cast<uint16_t>(*port));
  }
  return signs;
}

ReadAccess read_access(pid_t pid, pid_t first) {
  ReadAccess access;
  access.own_uid = ::geteuid();
  access.uid = access.own_uid;
  access.is_first_process = pid == first;
  const std::string contents = read_proc_file(cat("/proc/", pid, "/status"));
  std::string_view status = contents;
  while (!status.empty()) {
    const std::vector<std::string_view> words = words_of(take_line(status));
    if (words.size() > 1 && words[0] == "Uid:") access.uid = parse_int(words[1]).value_or(0);
  }
  const std::string scope = read_proc_file("/proc/sys/kernel/yama/ptrace_scope");
  access.yama_scope = parse_int(trim(scope)).value_or(-1);
  return access;
}

}  // namespace hvd::launcher
