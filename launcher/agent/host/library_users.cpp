#include "launcher/agent/host/library_users.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/proc_file.h"
#include "base/text.h"
#include "launcher/agent/host/process_connections.h"

namespace hvd::launcher {
namespace {

// Maximum number of processes per scan. The oldest processes are scanned.
constexpr ptrdiff_t kMaxLookedAt = 64;
constexpr size_t kMaxFile = 4 << 20;  // maximum size of a /proc file
// Most programs load their libraries early. A process older than kYoung is read again only every kReadAgain.
constexpr std::chrono::seconds kYoung{60}, kReadAgain{32};
// Parts of the paths of the libraries.
constexpr std::array<std::array<const char*, 2>, LibraryUsers::kLibraries> kLibraryFiles = {
    {{"/libtorch_cpu.so", "/libtorch.so"},
     {"/jaxlib/", "/jaxlib/"},
     {"/libmpi.so", "/libmpich.so"}}};

constexpr uint8_t kFirst = 2, kMpi = 4;

// Returns the number of the library that a process has loaded, or 0. PyTorch and JAX take precedence over MPI, because
// they find other ranks themselves, even if the process has also loaded an MPI.
uint8_t library_of(pid_t process) {
  const std::string maps = read_large_proc_file(cat("/proc/", process, "/maps"), kMaxFile);
  for (size_t i = 0; i < kLibraryFiles.size(); ++i) {
    const auto is_mapped = [&](const char* file) { return maps.find(file) != std::string::npos; };
    if (std::ranges::any_of(kLibraryFiles[i], is_mapped)) return static_cast<uint8_t>(kFirst + i);
  }
  return 0;
}

// Returns whether the process has the variables that mpirun sets for its ranks.
bool is_of_mpirun(pid_t process) {
  const std::string variables = read_large_proc_file(cat("/proc/", process, "/environ"), kMaxFile);
  return variables.find("OMPI_COMM_WORLD_SIZE=") != std::string::npos ||
         variables.find("PMI_SIZE=") != std::string::npos;
}

// Returns whether one of `ends` is connected to a socket outside of `own`.
bool leads_elsewhere(const std::set<ConnectionEnds>& ends, const std::set<ConnectionEnds>& own) {
  return std::ranges::any_of(ends, [&](const ConnectionEnds& end) {
    return !own.contains({end.second, end.first});
  });
}

}  // namespace

LibraryUsers::User LibraryUsers::read_again(const User& before, pid_t process) {
  const auto now = Clock::now();
  const bool is_due = now - before.seen < kYoung || now - before.read >= kReadAgain;
  if ((before.library != 0 && before.library != kMpi) || !is_due) return before;
  return {.seen = before.seen, .read = now, .library = library_of(process)};
}

LibraryUsers::Look LibraryUsers::look() {
  std::vector<ProcessEntry> processes = processes_below(::getpid());
  std::erase_if(processes, [](const ProcessEntry& process) { return process.state == 'Z'; });
  // Sort parents before children: a parent is older, or precedes the child in the list.
  std::ranges::stable_sort(processes, {}, &ProcessEntry::start);
  if (std::ssize(processes) > kMaxLookedAt)
    processes.erase(processes.begin() + kMaxLookedAt, processes.end());
  Look look;
  std::map<std::pair<pid_t, int64_t>, User> users;
  std::set<pid_t> have_library;
  for (const ProcessEntry& process : processes) {
    const std::pair key(process.pid, process.start);
    const auto known = users_.find(key);
    const User before = known == users_.end() ? User{.seen = Clock::now()} : known->second;
    const User& user = users.emplace(key, read_again(before, process.pid)).first->second;
    if (user.library == 0) continue;
    have_library.insert(process.pid);
    look.library = look.library == 0 ? user.library : std::min(look.library, user.library);
    look.is_new |= before.library == 0 && !have_library.contains(process.parent);
  }
  users_ = std::move(users);
  if (have_library.empty()) return look;
  Connections connections;
  std::map<pid_t, std::set<ConnectionEnds>> ends;
  std::set<ConnectionEnds> all;
  for (const ProcessEntry& process : processes) {
    ends[process.pid] = connections.of(process.pid);
    all.insert(ends[process.pid].begin(), ends[process.pid].end());
  }
  // Ignore connections inside one process. For MPI, also ignore connections between processes of this agent, which may
  // lead to a server that MPI has started. Instead, the variables of mpirun count as a connection.
  look.is_connected = std::ranges::any_of(users_, [&](const auto& each) {
    const pid_t pid = each.first.first;
    if (each.second.library != kMpi)
      return each.second.library != 0 && leads_elsewhere(ends[pid], ends[pid]);
    return leads_elsewhere(ends[pid], all) || is_of_mpirun(pid);
  });
  return look;
}

}  // namespace hvd::launcher
