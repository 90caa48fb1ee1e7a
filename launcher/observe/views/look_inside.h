// The commands `horovodrun ps [--json] [NAME]`, `horovodrun stack [--native] [NAME]` and `horovodrun metrics [NAME]`, which
// show the state of this user's running jobs, `horovodrun exec [NAME] [--rank LIST] COMMAND`, which runs a command beside their
// ranks, and `horovodrun resize [NAME] N` and `remove [NAME] HOST|RANK`, which change the ranks of an elastic
// job.
// `attach`, `logs`, `stop` and `wait` are in launcher/state. The launcher's main calls them.
#pragma once

#include <span>
#include <string>

namespace hvd::launcher {

// Returns whether the arguments begin with one of these commands.
bool asks_about_jobs(std::span<const std::string> arguments);
// Prints the answer; returns the exit code.
int answer_about_jobs(std::span<const std::string> arguments);

}  // namespace hvd::launcher
