// The messages between the agent and its PMIx helper: texts, each ended by a zero byte, and an empty text at the end.
// Agent and helper come from one build. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

using PmixTexts = std::vector<std::string>;

std::string pack_texts(const PmixTexts& texts);
// Removes the first complete message from the front of `bytes` and returns it; nullopt if the message is
// incomplete.
std::optional<PmixTexts> take_texts(std::string& bytes);

// The parameters for the server. Ranks are listed by host: {{0, 1}, {2, 3}}.
struct PmixOrder {
  std::string job;                 // names the world of the ranks
  size_t host = 0;                 // index of this host
  std::vector<std::string> names;  // names of the hosts
  std::vector<std::vector<int>> ranks;
  std::string store;   // address of the store for this host
  std::string secret;  // in hexadecimal digits

  size_t size() const;  // number of ranks in the world
};
PmixTexts to_texts(const PmixOrder& order);
Result<PmixOrder> parse_pmix_order(const PmixTexts& texts);

// Returns "0-1;2,4": the ranks of each host. Short enough for one variable, even with very many ranks.
std::string to_ranges(const std::vector<std::vector<int>>& ranks);
// Returns "0,1;2,4", in PMIx's format.
std::string to_map(const std::vector<std::vector<int>>& ranks);
// Parses the formats of to_ranges() and to_map().
Result<std::vector<std::vector<int>>> parse_map(std::string_view text);

}  // namespace hvd::launcher
