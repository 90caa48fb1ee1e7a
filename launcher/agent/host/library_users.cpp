#include "launcher/agent/host/library_users.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <string>

#include "base/proc_file.h"
#include "base/text.h"
#include "launcher/agent/host/process_connections.h"
#include "launcher/protocol/program.h"

namespace hvd::launcher {
namespace {

// Maximum number of processes per scan, which examines the oldest.
constexpr ptrdiff_t kMaxLookedAt = 64;
constexpr size_t kMaxFile = 4 << 20;  // maximum size of a /proc file
constexpr size_t kMaxValue = 400;     // maximum size of a value in a VariableChange
// Most programs load their libraries early. A process older than kYoung is read again only every kReadAgain.
constexpr std::chrono::seconds kYoung{60}, kReadAgain{32};
// Parts of the paths of the libraries.
constexpr std::array<std::array<const char*, 2>, LibraryUsers::kLibraries> kLibraryFiles = {
    {{"/libtorch_cpu.so", "/libtorch.so"},
     {"/jaxlib/", "/jaxlib/"},
     {"/libmpi.so", "/libmpich.so"}}};

constexpr uint8_t kFirst = LibraryUsers::kTorch, kMpi = 4;

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

// Reads kWorldVariables of the environment with which a process began its program.
std::optional<Environment> variables_of(pid_t process) {
  const std::string all = read_large_proc_file(cat("/proc/", process, "/environ"), kMaxFile);
  // A program that renames its process may have overwritten its environment.
  if (all.find('=') == std::string::npos) return {};
  Environment variables;
  for (const std::string& variable : split(all, '\0')) {
    const size_t equals = std::min(variable.find('='), variable.size() - 1);
    const std::string name = variable.substr(0, equals);
    if (std::ranges::find(kWorldVariables, name) != kWorldVariables.end())
      variables.emplace_back(name, variable.substr(equals + 1));
  }
  return variables;
}

class ProgramFinder {
 public:
  using Program = LibraryUsers::Program;

  // The caller adds parents before their children.
  void add(const ProcessEntry& process, uint8_t library,
           const std::optional<Environment>& variables) {
    const auto parent = child_of_.find(process.parent);
    const pid_t child = parent == child_of_.end() ? process.pid : parent->second;
    child_of_[process.pid] = child;
    const bool is_inside = inside_.contains(process.parent);
    if (is_inside || library != 0) inside_.insert(process.pid);
    Program& program = programs_[child];
    if (is_inside || program.library > library) return;
    const bool is_first =
        program.library == 0 && (library != 0 || program.pid == 0 || program.pid == process.parent);
    program = {.pid = is_first ? process.pid : -1, .library = library};
    if (is_first) program.variables = variables;
  }
  Program& program_above(pid_t process) { return programs_[child_of_[process]]; }
  const std::map<pid_t, Program>& programs() const { return programs_; }

 private:
  std::map<pid_t, pid_t> child_of_;    // by process
  std::map<pid_t, Program> programs_;  // by child
  std::set<pid_t> inside_;             // processes with a library, and their descendants
};

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
  User user{before.seen, now, library_of(process), before.variables};
  // The process may have executed another program since the last scan.
  if (!user.variables || user.library != before.library) {
    if (auto variables = variables_of(process)) user.variables = std::move(variables);
  }
  return user;
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
  ProgramFinder finder;
  for (const ProcessEntry& process : processes) {
    const std::pair key(process.pid, process.start);
    const auto known = users_.find(key);
    const User before = known == users_.end() ? User{.seen = Clock::now()} : known->second;
    const User& user = users.emplace(key, read_again(before, process.pid)).first->second;
    finder.add(process, user.library, user.variables);
    if (user.library == 0) continue;
    have_library.insert(process.pid);
    look.library = look.library == 0 ? user.library : std::min(look.library, user.library);
    look.is_new |= before.library == 0 && !have_library.contains(process.parent);
  }
  users_ = std::move(users);
  look.programs = finder.programs();
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
  for (const auto& [key, user] : users_) {
    const pid_t pid = key.first;
    const bool is_connected =
        user.library == kMpi
            ? !look.is_connected && (leads_elsewhere(ends[pid], all) || is_of_mpirun(pid))
            : user.library != 0 && leads_elsewhere(ends[pid], ends[pid]);
    look.is_connected |= is_connected;
    finder.program_above(pid).is_connected |= is_connected;
  }
  look.programs = finder.programs();
  return look;
}

std::vector<VariableChange> changes_between(const Environment& given, const Environment& found) {
  std::vector<VariableChange> changes;
  for (const std::string_view name : kWorldVariables) {
    const std::string_view before = value_of(given, name), now = value_of(found, name);
    if (before.empty() || now == before) continue;
    changes.push_back({std::string(name), std::string(before.substr(0, kMaxValue)),
                       std::string(now.substr(0, kMaxValue))});
  }
  return changes;
}

}  // namespace hvd::launcher
