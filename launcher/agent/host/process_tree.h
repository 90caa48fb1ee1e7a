// Finds, signals and ends all descendants of this process. This process must be a subreaper, so that orphans remain its
// descendants. Without /proc it finds no processes. Scans run on any thread, signals on one.
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
  int64_t start;  // in ticks since boot
  char state;
  std::string name;
};

// Returns the seconds since the start of a process; `start`: in ticks since boot.
double age_seconds(int64_t start);
// Returns whether /proc shows this process's PID namespace: /proc may be missing, hidden, or of another namespace.
bool sees_its_processes();
// Returns the descendants of one process, including zombies, because threads of a zombie may still run.
std::vector<ProcessEntry> processes_below(pid_t root);
// Returns the entries of `all` that are the process `root` or its descendants, parents before their children.
std::vector<ProcessEntry> tree_of(pid_t root, const std::vector<ProcessEntry>& all);
std::vector<pid_t> descendants();
// Returns a descendant of this process, and all descendants of that process.
std::vector<pid_t> descendants_of(pid_t pid);
// Returns whether the text of /proc/PID/status lists a handler for the signal.
bool handles_signal(std::string_view status, int number);

// Sends the signals to a process of an earlier scan, unless another process has reused its pid since.
void signal_process(const ProcessEntry& process, std::initializer_list<int> numbers);
// Sends each of the signals to each descendant except `spared`. A child that leads a process group gets the signals
// together with its group, including children forked in the group meanwhile. If the kernel has pidfds, no process that
// reuses the pid of an ended descendant gets a signal.
void signal_descendants(std::initializer_list<int> numbers, const std::set<pid_t>& spared = {});
// Sends the signals to the descendants of this process that belong to `group`.
void signal_group(pid_t group, std::initializer_list<int> numbers,
                  const std::set<pid_t>& spared = {});
// Returns true if this process has no children, not even zombies.
bool is_childless();
// Returns "sudo (pid 12), python3 of rank 1 (pid 13, state D in io_schedule)", for a message about processes that do
// not end. State D and the kernel function are those of a process that waits for a disk or a device.
std::string describe_descendants(const std::function<std::optional<int>(pid_t)>& rank_of);
// Returns whether this process has descendants that have not ended, other than `spared`, and all of these are in state
// D.
bool are_stuck_in_kernel(const std::set<pid_t>& spared = {});

}  // namespace hvd::launcher
