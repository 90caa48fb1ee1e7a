#include "launcher/allocation/sge_hosts.h"

#include <optional>

#include "base/clock.h"
#include "base/text.h"
#include "base/words.h"
#include "launcher/spawn/local_program.h"

namespace hvd::launcher {
namespace {

constexpr double kQstatSeconds = 10;

// "5" of "<slots>5</slots>".
std::optional<std::string_view> element_of(std::string_view line, std::string_view tag) {
  const std::string begin = cat("<", tag, ">"), end = cat("</", tag, ">");
  if (!line.starts_with(begin) || !line.ends_with(end)) return std::nullopt;
  return line.substr(begin.size(), line.size() - begin.size() - end.size());
}

}  // namespace

Result<std::vector<Host>> parse_sge_hosts(std::string_view text, std::string_view job) {
  const std::string words = printable(one_line(text.substr(0, 300)));
  HostList hosts;
  std::string_view host;
  bool is_answer = false, is_it = false;
  while (!text.empty()) {
    const std::string_view line = trim(take_line(text));
    is_answer = is_answer || line.starts_with("<job_info");
    if (const auto queue = element_of(line, "name")) host = queue->substr(queue->find('@') + 1);
    if (const auto number = element_of(line, "JB_job_number")) is_it = *number == job;
    if (is_it && element_of(line, "tasks"))
      return failed_precondition("it is an array, whose tasks have hosts of their own");
    const auto count = element_of(line, "slots");
    if (!is_it || !count) continue;
    HVD_RETURN_IF_ERROR(check_host_name(host));
    HVD_ASSIGN_OR_RETURN(const int slots, parse_slots(*count));
    HVD_RETURN_IF_ERROR(hosts.add({std::string(host), "", slots}));
  }
  if (!is_answer) return unavailable(cat("qstat printed ", words.empty() ? "nothing" : words));
  HVD_ASSIGN_OR_RETURN(auto all, hosts.take());
  if (all.empty()) return not_found("qstat lists no running job of yours with that number");
  return all;
}

Result<std::vector<Host>> read_sge_hosts(const std::string& job) {
  HVD_ASSIGN_OR_RETURN(const std::string text, output_of({"qstat", "-f", "-ne", "-s", "r", "-xml"},
                                                         Deadline::after_seconds(kQstatSeconds)));
  return parse_sge_hosts(text, job);
}

}  // namespace hvd::launcher
