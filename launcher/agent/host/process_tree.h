// Finds, signals and ends all descendants of this process. This process must be a subreaper, so that
// orphans stay its descendants. Without /proc it sees only its own children. The agent and the
// guardian use it. One thread.
#pragma once

#include <sys/types.h>

#include <initializer_list>
#include <string>
#include <vector>

namespace hvd::launcher {

// Makes this process the one that inherits the orphans below it.
void become_subreaper();

// Children, their children and so on; also those that have ended and wait to be waited for, since
// threads of theirs may still run.
std::vector<pid_t> descendants();
// Only those below one of them, with it.
std::vector<pid_t> descendants_of(pid_t pid);
// 0 when that is not known.
pid_t parent_of(pid_t pid);
// Sends each of the signals to each of them.
void signal_descendants(std::initializer_list<int> numbers, pid_t spared = -1);
// True when this process has no child left, ended or not.
bool is_childless();
// "sudo (pid 12), x (pid 13)", for a message about what cannot be ended.
std::string describe_descendants();

}  // namespace hvd::launcher
