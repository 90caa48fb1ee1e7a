// Finds, signals and ends all descendants of this process. This process must be a subreaper, so that orphans stay its
// descendants. Without /proc it finds no process. The agent and the guardian use it. Scans run on any thread, signals
// on one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

// Makes this process a subreaper: it becomes the parent of orphans among its descendants.
void become_subreaper();

struct ProcessEntry {
  pid_t pid;
  pid_t parent;
  int64_t start;  // in ticks since the boot
  char state;
  std::string name;
};

// Whether /proc shows the processes of this process's PID namespace: it may be missing, hidden, or of another one.
bool sees_its_processes();
// Returns the descendants of one process, zombies included, since threads of a zombie may still run.
std::vector<ProcessEntry> processes_below(pid_t root);
// Returns those of `all` that are this process or its descendants, parents before their children.
std::vector<ProcessEntry> tree_of(pid_t root, const std::vector<ProcessEntry>& all);
// Returns all descendants of this process.
std::vector<pid_t> descendants();
// Returns one descendant and all of its descendants.
std::vector<pid_t> descendants_of(pid_t pid);
// Returns the parent's pid, or 0 when it is unknown.
pid_t parent_of(pid_t pid);
// Returns the start of a process in ticks since the boot, or nothing when it is unknown.
std::optional<int64_t> start_of(pid_t pid);
// Whether the text of /proc/PID/status shows a handler for the signal.
bool handles_signal(std::string_view status, int number);

// Sends the signals to the process that a scan has found, and to no other one that has its pid by now.
void signal_process(const ProcessEntry& process, std::initializer_list<int> numbers);
// Sends each of the signals to each descendant, except to those `spared`. A child that leads a process group
// gets them with its group, and with children that are forked in the group meanwhile. Where the kernel
// has pidfds, no process that has got the pid of an ended descendant is hit.
void signal_descendants(std::initializer_list<int> numbers, const std::set<pid_t>& spared = {});
// Sends them to the descendants in this process group.
void signal_group(pid_t group, std::initializer_list<int> numbers,
                  const std::set<pid_t>& spared = {});
// Returns true when this process has no children, zombies included.
bool is_childless();
// Returns "sudo (pid 12), python3 of rank 1 (pid 13, state D in io_schedule)", for a message about processes that do not
// end: the state and the kernel's function are those of a process that waits for a disk or a device.
std::string describe_descendants(const std::function<std::optional<int>(pid_t)>& rank_of);
// Whether this process has descendants, and all but those `spared` are in that state or have ended.
bool are_stuck_in_kernel(const std::set<pid_t>& spared = {});

}  // namespace hvd::launcher
