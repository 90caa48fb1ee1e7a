// Parses hostfiles in the formats of the original Horovod, Open MPI, MPICH and DeepSpeed. Called
// for --hostfile and for the hostfile of the MPI Operator. Pure.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/plan/hosts.h"

namespace hvd::launcher {

// One host a line: "a slots=4 max_slots=8", "a:4 user=me", "n[01-16] slots=4" or "a", which has
// `slots_alone`; other key=value words are ignored, so are comments and blank lines. `path` is for
// messages, which name it and the line.
Result<std::vector<Host>> parse_hostfile(std::string_view text, std::string_view path,
                                         int slots_alone = 1);

// The words of one line, at least one: "a", "a:4" or "n[01-16]", then key=value words.
Result<HostItem> parse_host_words(std::span<const std::string_view> words);

}  // namespace hvd::launcher
