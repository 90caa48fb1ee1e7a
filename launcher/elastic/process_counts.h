// Counts an elastic job's processes and ranks, and answers questions about them. Pure functions of the table, which
// ignore processes that have ended or are being ended.
#pragma once

#include <string>
#include <vector>

#include "launcher/hosts/host_table.h"

namespace hvd::launcher {

int live_processes(const HostTable& hosts);
// Excludes processes that a user has removed.
int live_processes(const HostTable& hosts, const std::string& host);
int staying_processes(const HostTable& hosts);  // on hosts that do not leave
int live_members(const HostTable& hosts);
int staying_members(const HostTable& hosts);  // without ranks that must leave
int members_of(const HostTable& hosts, const std::string& host);
// Returns whether a rank of the current generation still runs although the launcher ends it, alone or with its host:
// such a rank may save its work.
bool has_ending_member(const HostTable& hosts);
// Returns whether a rank that has the state remains.
bool has_survivor(const HostTable& hosts);
bool all_have_asked(const HostTable& hosts);
// Returns free slots of a host for the next `count` processes. The host becomes the next entry of the table.
std::vector<Slot> places_on(const HostTable& hosts, const std::string& name, int count);

}  // namespace hvd::launcher
