#include "bootstrap/pmi/pmi_wire.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::bootstrap {

Result<PmiFields> parse_pmi(std::string_view line) {
  PmiFields fields;
  auto last = fields.end();
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    if (word.empty()) continue;
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos && last != fields.end()) {
      last->second += cat(" ", word);
      continue;
    }
    if (equals == std::string_view::npos || equals == 0) {
      return invalid_argument(
          cat("the PMI server says '", printable(word), "' where NAME=VALUE should be"));
    }
    const auto [place, is_new] = fields.emplace(word.substr(0, equals), word.substr(equals + 1));
    if (!is_new) {
      return invalid_argument(
          cat("the PMI server says ", printable(place->first), " twice in a line"));
    }
    last = place;
  }
  return fields;
}

Status check_pmi(const PmiFields& answer, std::string_view cmd) {
  const auto found = answer.find("cmd");
  if (found == answer.end() || found->second != cmd) {
    return internal_error(cat("the PMI server answers '",
                              found == answer.end() ? "" : printable(found->second), "' where '",
                              cmd, "' was expected"));
  }
  const auto code = answer.find("rc");
  if (code == answer.end() || code->second == "0") return {};
  const auto message = answer.find("msg");
  return unavailable(cat("the PMI server answers ", cmd, " with code ", printable(code->second),
                         message == answer.end() ? "" : ": ",
                         message == answer.end() ? "" : printable(message->second)));
}

}  // namespace hvd::bootstrap
