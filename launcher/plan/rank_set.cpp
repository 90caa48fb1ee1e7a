#include "launcher/plan/rank_set.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::launcher {

Result<std::vector<bool>> parse_ranks(std::string_view text, int size) {
  std::vector<bool> ranks(static_cast<size_t>(size));
  for (const std::string& part : split(text, ',')) {
    const std::string_view word = trim(part);
    const size_t dash = word.find('-', 1);
    const auto first = parse_int(word.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_int(word.substr(dash + 1));
    if (!first || !last || *first < 0 || *first > *last) {
      return invalid_argument(
          cat("'", printable(word), "' is neither a rank nor a range such as 3-5"));
    }
    if (*last >= size) {
      return invalid_argument(cat("there is no rank ", *last, "; the last one is ", size - 1));
    }
    for (int64_t rank = *first; rank <= *last; ++rank) ranks[static_cast<size_t>(rank)] = true;
  }
  return ranks;
}

std::string name_of_ranks(std::vector<int> ranks) {
  constexpr size_t kMostParts = 3;
  std::ranges::sort(ranks);
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  size_t at = 0;
  for (size_t part = 0; part < kMostParts && at < ranks.size(); ++part) {
    const size_t first = at++;
    while (at < ranks.size() && ranks[at] == ranks[at - 1] + 1) ++at;
    text += cat(part == 0 ? "" : ", ", ranks[first]);
    if (at - first > 1) text += cat("-", ranks[at - 1]);
  }
  return at == ranks.size() ? text : cat(text, " and ", ranks.size() - at, " more");
}

std::string count_of_ranks(int64_t count) { return cat(count, count == 1 ? " rank" : " ranks"); }

}  // namespace hvd::launcher
