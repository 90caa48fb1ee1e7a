// Parses and checks lines of PMI-1, for example "cmd=put kvsname=K key=X value=Y". MPICH's hydra and Slurm's mpi/pmi2
// use such lines on a descriptor. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hvd::bootstrap {

using PmiFields = std::map<std::string, std::string, std::less<>>;

// Returns the fields of one line, without its newline. A value ends before the next NAME=, so that a
// message may have blanks.
Result<PmiFields> parse_pmi(std::string_view line);

// Checks a reply: it must have this cmd, and rc=0 if it has an rc.
Status check_pmi(const PmiFields& answer, std::string_view cmd);

}  // namespace hvd::bootstrap
