#include "launcher/elastic/training_end.h"

#include <algorithm>
#include <set>

namespace hvd::launcher {

bool TrainingEnd::is_behind(const Ranks& ranks) const {
  const auto has_returned = [](const RankRun* rank) { return rank->place().has_returned(); };
  const auto has_entered = [](const RankRun* rank) {
    return rank->place().is_in_run() || rank->place().has_returned();
  };
  if (ranks.empty() || !std::ranges::all_of(ranks, has_entered)) return false;
  if (std::ranges::all_of(ranks, has_returned)) return true;
  bool has_others = !finished_.empty();
  for (RankRun* other : hosts_.members()) {
    const bool is_one = std::ranges::find(ranks, other) != ranks.end();
    if (is_one || other->is_gone()) continue;
    if (!has_returned(other)) return false;
    has_others = true;
  }
  return has_others;
}

bool TrainingEnd::has_come() const {
  bool has_returned = false;
  for (const RankRun* rank : hosts_.members()) {
    if (!rank->is_gone() && rank->place().is_in_run()) return false;
    has_returned |= rank->place().has_returned();
  }
  return has_returned;
}

void TrainingEnd::finished(const RankRun& process, Clock::time_point now) {
  if (!finished_.empty()) finished_ += ", ";
  finished_ += process.describe();
  reminder_.start(now + Reminder::kInterval);
}

void TrainingEnd::failed(int exit_code, const std::string& sentence, int process,
                         Clock::time_point now) {
  failure_.note(exit_code, sentence, process);
  reminder_.start(now + Reminder::kInterval);
}

void TrainingEnd::clear() {
  failure_.clear();
  reminder_.stop();
}

std::string TrainingEnd::sentence() const {
  if (failure_.process() < 0) return failure_.sentence();
  if (finished_.empty()) return cat(failure_.sentence(), ", after training was over");
  return cat("training was over; ", finished_, " exited with code 0; ", failure_.sentence(),
             " after it");
}

std::optional<std::string> TrainingEnd::reminder(Clock::time_point now) {
  if (!reminder_.is_due(now)) return {};
  std::vector<std::string> names;
  for (const RankRun* rank : hosts_.members()) {
    if (!rank->is_gone()) names.push_back(rank->describe());
  }
  if (names.empty()) return {};
  return cat("training is over, and the job waits for ", join(names, ", "));
}

namespace {

constexpr size_t kMostSeries = 32, kMostFailures = 32;
constexpr std::string_view kCause = ": the program or its data is the cause, not a host";

// Returns whether two failures were on different hosts, or in the same slot of the same host.
bool is_elsewhere(const RepeatedException::Failure& first,
                  const RepeatedException::Failure& second) {
  return first.host != second.host || first.slot == second.slot;
}

}  // namespace

void RepeatedException::failed(const std::string& exception, int exit_code,
                               const Failure& failure) {
  // Horovod raises HorovodInternalError on ranks that another rank's failure affects.
  if (exception.empty() || exception.find("HorovodInternalError") != std::string::npos) return;
  auto series = std::find_if(series_.begin(), series_.end(), [&](const Series& each) {
    return each.exception == exception && each.exit_code == exit_code;
  });
  if (series == series_.end()) {
    if (series_.size() == kMostSeries) series_.erase(series_.begin());
    series = series_.insert(series_.end(), Series{exception, exit_code, {}});
  }
  // Failures in one generation may have one cause outside of the program.
  if (!series->failures.empty() && series->failures.back().generation >= failure.generation) return;
  if (series->failures.size() == kMostFailures) series->failures.erase(series->failures.begin());
  series->failures.push_back(failure);
}

void RepeatedException::committed(int32_t generation, int32_t commits) {
  int32_t& most = commits_[generation];
  most = std::max(most, commits);
}

int64_t RepeatedException::commits_between(const Failure& first, const Failure& second) const {
  int64_t sum = 0;
  for (auto each = commits_.upper_bound(first.generation);
       each != commits_.end() && each->first <= second.generation; ++each) {
    sum += each->second;
  }
  return sum;
}

std::optional<RepeatedException::Verdict> RepeatedException::verdict() const {
  for (const Series& series : series_) {
    if (auto verdict = verdict_on(series)) return verdict;
  }
  return std::nullopt;
}

std::optional<RepeatedException::Verdict> RepeatedException::verdict_on(
    const Series& series) const {
  const Failure& last = series.failures.back();
  std::set<std::string> hosts = {last.host};
  for (auto each = series.failures.rbegin() + 1; each != series.failures.rend(); ++each) {
    const int64_t commits = commits_between(*each, last);
    if (commits <= kFewCommits && is_elsewhere(*each, last)) {
      return Verdict{series.exit_code, last.process,
                     cat(last.sentence, "; ", each->whose, " had failed with the same exception (",
                         series.exception, ") in generation ", each->generation, ", and ",
                         commits == 0   ? "no rank has committed since"
                         : commits == 1 ? "the ranks have committed once since"
                                        : cat("the ranks have committed ", commits, " times since"),
                         kCause)};
    }
    if (!hosts.insert(each->host).second || hosts.size() < 3) continue;
    const auto second = std::find_if(each.base(), series.failures.end(), [&](const Failure& other) {
      return other.host != each->host && other.host != last.host;
    });
    return Verdict{series.exit_code, last.process,
                   cat(last.sentence, "; ", each->whose, " and ", second->whose,
                       " had failed with the same exception (", series.exception,
                       ") in generations ", each->generation, " and ", second->generation, kCause)};
  }
  return std::nullopt;
}

}  // namespace hvd::launcher
