// The wire protocol PMI-1, with which the ranks of MPICH and its derivatives find each other: lines
// of words "key=value". Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

// The limits that the server reports to its clients.
inline constexpr size_t kMaxPmiKey = 64;
inline constexpr size_t kMaxPmiValue = 1024;

struct PmiCommand {
  std::string name;
  std::map<std::string, std::string> values;  // its other words; empty for multi-line commands

  std::string_view value(const std::string& key) const;
};

// Removes the first complete command from the front of `bytes`. Returns nullopt if the command is incomplete, and an
// error if the bytes are not a PMI-1 command or exceed the protocol's limits.
Result<std::optional<PmiCommand>> take_pmi_command(std::string& bytes);

// Returns the hosts of all ranks in the format of the key PMI_process_mapping: "(vector,(0,2,4))" means that hosts 0
// and 1 have four ranks each. Empty if the text would not fit into a reply: clients then compare their host names.
std::string pmi_mapping(const std::vector<std::vector<int>>& ranks);

}  // namespace hvd::launcher
