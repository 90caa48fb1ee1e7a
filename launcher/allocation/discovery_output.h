// Parses the output of --host-discovery-script: the hosts that an elastic job may use now. Skips invalid lines with a
// warning, so that one bad line does not end the training on all hosts. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/hosts.h"

namespace hvd::launcher {

struct DiscoveryOutput {
  std::vector<Host> hosts;  // each name once, in the order of first mention
  // Sentences for the user, each with the number and the text of a line. The number of sentences is limited.
  std::vector<std::string> warnings;
  // The output has words, but no word names a host: the output is an error message and not an answer.
  bool is_error = false;
};

// Each line has a host or a list of hosts, in the forms of a hostfile: "a:2", "a slots=2", "a:2,b:2", "n[01-16]:8",
// "[fd00::1]:2", or "a", which has `slots_alone` slots. Comments and blank lines are ignored. For a host with several
// lines, the last line applies. An output without hosts is valid, and also "a:0". Words for a missing value (null,
// None) name no host.
DiscoveryOutput parse_discovery_output(std::string_view text, int slots_alone = 1);

}  // namespace hvd::launcher
