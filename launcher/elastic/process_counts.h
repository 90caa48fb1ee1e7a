// Questions about the processes of an elastic job, and which of them are ranks. Pure functions over the table; a process
// that has ended or is being ended counts nowhere.
#pragma once

#include <string>
#include <vector>

#include "launcher/hosts/host_table.h"

namespace hvd::launcher {

int live_processes(const HostTable& hosts);
// Without those that a user has removed.
int live_processes(const HostTable& hosts, const std::string& host);
int staying_processes(const HostTable& hosts);  // on hosts that do not leave
int live_members(const HostTable& hosts);
int staying_members(const HostTable& hosts);  // without those that are to leave
int members_of(const HostTable& hosts, const std::string& host);
// Whether a rank of the present generation still runs that the launcher ends, alone or with its host: it may save its
// work.
bool has_ending_member(const HostTable& hosts);
// Whether a rank that has the state goes on.
bool has_survivor(const HostTable& hosts);
bool all_have_asked(const HostTable& hosts);
// Places on free slots of a host, as the next entry of the table, for the next `count` processes.
std::vector<Slot> places_on(const HostTable& hosts, const std::string& name, int count);

}  // namespace hvd::launcher
