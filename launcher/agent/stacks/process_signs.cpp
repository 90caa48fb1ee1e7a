#include "launcher/agent/stacks/process_signs.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>

#include "base/proc_file.h"
#include "base/text.h"
#include "base/words.h"
#include "launcher/agent/host/process_tree.h"
#include "launcher/program/program.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

// Threads of a process beyond these are not looked at.
constexpr size_t kMaxThreads = 1000;

}  // namespace

bool runs_python(pid_t pid) {
  std::error_code error;
  const fs::path program = fs::read_symlink(cat("/proc/", pid, "/exe"), error);
  if (!error) return is_python(program.string());
  // The link of another user's process is hidden.
  const std::string words = read_proc_file(cat("/proc/", pid, "/cmdline"));
  return is_python(words.c_str());
}

std::vector<pid_t> topmost_pythons(const std::vector<ProcessSnapshot>& processes) {
  std::set<pid_t> pythons, all;
  for (const ProcessSnapshot& process : processes) {
    all.insert(process.pid);
    if (runs_python(process.pid)) pythons.insert(process.pid);
  }
  std::vector<pid_t> topmost;
  for (const pid_t pid : pythons) {
    pid_t above = parent_of(pid);
    while (all.contains(above) && !pythons.contains(above)) above = parent_of(above);
    if (!pythons.contains(above)) topmost.push_back(pid);
  }
  return topmost;
}

WaitSigns wait_signs(pid_t pid) {
  WaitSigns signs;
  std::error_code error;
  size_t count = 0;
  for (fs::directory_iterator at(cat("/proc/", pid, "/task"), error), end;
       !error && at != end && ++count <= kMaxThreads; at.increment(error)) {
    signs.threads.emplace(trim(read_proc_file((at->path() / "comm").string())));
  }
  signs.is_in_io = is_io(read_proc_file(cat("/proc/", pid, "/syscall")));
  std::ifstream maps(cat("/proc/", pid, "/maps"));
  bool has_jax = false;
  for (std::string line; std::getline(maps, line);) {
    signs.has_mpi |= line.find("/libmpi.so") != std::string::npos ||
                     line.find("/libmpich.so") != std::string::npos;
    has_jax |= line.find("/jaxlib/") != std::string::npos;
  }
  // jax.distributed speaks to its coordinator by gRPC.
  signs.has_jax = has_jax && std::ranges::any_of(signs.threads, [](const std::string& name) {
                    return name.starts_with("grpc_");
                  });
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
