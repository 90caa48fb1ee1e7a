// Parses the output of --host-discovery-script: the hosts that an elastic job may use now. Skips invalid lines with a
// warning, so that one bad line does not end the training on all other hosts. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/hosts.h"

namespace hvd::launcher {

struct DiscoveryOutput {
  std::vector<Host> hosts;  // in the order of their first mention, each name once
  // Sentences for the user, each with the number and the text of its line. Bounded.
  std::vector<std::string> warnings;
  // There are words, and none names a host: the output is an error message rather than an answer.
  bool is_error = false;
};

// One host or a list of hosts on each line, in the forms of a hostfile: "a:2", "a slots=2", "a:2,b:2",
// "n[01-16]:8", "[fd00::1]:2", or "a", which has `slots_alone`. Comments and blank lines are ignored.
// A host that is given again has the slots of its last mention. No hosts at all is a valid answer, and
// "a:0" as well. Words for a missing value (null, None) name no host.
DiscoveryOutput parse_discovery_output(std::string_view text, int slots_alone = 1);

}  // namespace hvd::launcher
