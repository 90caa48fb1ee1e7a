// The wire protocol of PMI-1, by which the ranks of MPICH and its relatives find each other: lines of words
// "key=value". Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

// The limits that the server names to its clients.
inline constexpr size_t kMaxPmiKey = 64;
inline constexpr size_t kMaxPmiValue = 1024;

struct PmiCommand {
  std::string name;
  std::map<std::string, std::string> values;  // its other words; none of a command of several lines

  std::string_view value(const std::string& key) const;
};

// Takes the first whole command off the start of `bytes`. Nothing: the command is not complete. An error: this is
// no command of PMI-1, or a longer one than the protocol has.
Result<std::optional<PmiCommand>> take_pmi_command(std::string& bytes);

// The hosts of all ranks in the form of the key PMI_process_mapping: "(vector,(0,2,4))" says that the hosts 0 and 1
// have four ranks each. Empty if the text is longer than an answer: clients then compare the names of their hosts.
std::string pmi_mapping(const std::vector<std::vector<int>>& ranks);

}  // namespace hvd::launcher
