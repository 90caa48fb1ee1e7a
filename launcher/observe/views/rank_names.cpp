#include "launcher/observe/views/rank_names.h"

#include "base/text.h"

namespace hvd::launcher {

std::string with_present_ranks(std::string_view text, const HostTable& hosts) {
  constexpr std::string_view kHead = "rank ";
  std::string named;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    const auto process =
        line.starts_with(kHead) ? parse_int(line.substr(kHead.size())) : std::nullopt;
    const int rank = process ? hosts.rank_of(*process) : -1;
    if (!process)
      named += line;
    else if (rank < 0)
      named += cat("process ", *process, ", not a rank");
    else
      named += cat("rank ", rank, " (process ", *process, ")");
    named += '\n';
  }
  return named;
}

}  // namespace hvd::launcher
