// The messages between the agent and its PMIx helper: texts that each end with a zero byte, and an
// empty text at the end. Agent and helper come from one build. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

using PmixTexts = std::vector<std::string>;

std::string pack_texts(const PmixTexts& texts);
// The first whole message at the start of `bytes`, which it leaves there without; nothing when it
// is not complete.
std::optional<PmixTexts> take_texts(std::string& bytes);

// The order to serve. Ranks by host: {{0, 1}, {2, 3}}.
struct PmixOrder {
  std::string job;                 // names the ranks' world
  size_t host = 0;                 // index of this host
  std::vector<std::string> names;  // names of the hosts
  std::vector<std::vector<int>> ranks;
  std::string store;   // where it listens for this host
  std::string secret;  // in hexadecimal digits

  size_t size() const;  // of the world
};
PmixTexts to_texts(const PmixOrder& order);
Result<PmixOrder> parse_pmix_order(const PmixTexts& texts);

// "0-1;2,4": the ranks of each host. A job of very many ranks fits into one variable.
std::string to_ranges(const std::vector<std::vector<int>>& ranks);
// "0,1;2,4", as PMIx writes it.
std::string to_map(const std::vector<std::vector<int>>& ranks);
// Reads both forms.
Result<std::vector<std::vector<int>>> parse_map(std::string_view text);

}  // namespace hvd::launcher
