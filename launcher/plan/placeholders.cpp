#include "launcher/plan/placeholders.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"

namespace hvd::launcher {

Status check_placeholders(std::string_view flag, std::string_view text,
                          std::span<const std::string_view> known) {
  for (size_t at = 0; (at = text.find('{', at)) != std::string_view::npos; ++at) {
    const size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at + 1);
    // This is not a placeholder.
    if (end == at + 1 || end == std::string_view::npos || text[end] != '}') continue;
    const std::string_view word = text.substr(at + 1, end - at - 1);
    const bool is_of_a_shell = at > 0 && text[at - 1] == '$';
    if (is_of_a_shell || std::ranges::find(known, word) != known.end()) continue;
    std::vector<std::string> words;
    for (const std::string_view each : known) words.push_back(cat("{", each, "}"));
    const std::string last = words.back();
    words.pop_back();
    return invalid_argument(
        cat(flag, " knows no {", word, "}; there are ", join(words, ", "), " and ", last));
  }
  return {};
}

}  // namespace hvd::launcher
