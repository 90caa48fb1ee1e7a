#include "launcher/observe/rules/straggler_report.h"

#include <cmath>

#include "base/text.h"
#include "launcher/output/line_folder.h"

namespace hvd::launcher {
namespace {

std::string duration(double seconds) {
  if (seconds >= 10) return cat(std::lround(seconds), " s");
  if (seconds >= 1) return cat(std::round(10 * seconds) / 10, " s");
  const double value = 1000 * seconds;
  return cat(value < 10 ? std::round(10 * value) / 10 : std::round(value), " ms");
}

// Returns the share of the wait in the whole time, wait plus `rest`.
std::string percent(double wait, double rest) {
  return cat(wait > 0 ? std::lround(100 * wait / (wait + rest)) : 0, " %");
}

std::string_view ordinal_ending(uint64_t number) {
  if (number % 100 / 10 == 1) return "th";
  return number % 10 == 1 ? "st" : number % 10 == 2 ? "nd" : number % 10 == 3 ? "rd" : "th";
}

std::string described(const StragglerFinding& finding, const std::vector<std::string>& host_of) {
  const std::string late = duration(finding.late_seconds);
  const std::string share = percent(finding.late_seconds, finding.step_seconds);
  const std::string steps = cat(finding.late_steps, " of ", StepWindow::kSteps, " steps");
  switch (finding.kind) {
    case StragglerKind::kHost:
      return cat(ranks_on_hosts(finding.ranks, host_of), ", all ranks of ",
                 finding.is_one_of_two ? "the later of two hosts" : "this host", ", are ", late,
                 " late in ", steps, ", ", share, " of a step");
    case StragglerKind::kConstant:
      return cat(ranks_on_hosts(finding.ranks, host_of),
                 finding.is_one_of_two ? ", the later of two, is " : " is ", late, " late in ",
                 steps, ", ", share, " of a step");
    case StragglerKind::kPeriodic:
      return cat(
          ranks_on_hosts(finding.ranks, host_of), " is ", late, " late in every ", finding.period,
          ordinal_ending(finding.period), " step, as by a checkpoint or a log; the others wait ",
          percent(finding.late_seconds, static_cast<double>(finding.period) * finding.step_seconds),
          " of the time");
    case StragglerKind::kMoving:
      return cat("in ", steps, " a rank is late, each time another one, by ", late, ", ", share,
                 " of a step, as by uneven data or a garbage collector");
    case StragglerKind::kEverybody:
      return cat("all ranks are slower than before: a step takes ", late, " longer than ",
                 duration(finding.step_seconds));
  }
  return "";
}

}  // namespace

std::string straggler_sentence(const StragglerFinding& finding, const std::string& cause,
                               const LateLine& line, const std::vector<std::string>& host_of) {
  std::string text = described(finding, host_of);
  if (!cause.empty()) text += cat("; cause: ", cause);
  if (!line.line.empty())
    text += cat(", in ", line.samples, " of ", line.of, " samples in ", printable(line.line));
  return text;
}

}  // namespace hvd::launcher
