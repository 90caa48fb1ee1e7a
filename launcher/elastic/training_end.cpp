#include "launcher/elastic/training_end.h"

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace hvd::launcher {

bool TrainingEnd::is_behind(const std::vector<int>& ranks) const {
  const auto has_returned = [this](int rank) { return table_.processes.at(rank).has_returned; };
  const auto has_entered = [this](int rank) {
    const JobProcess& process = table_.processes.at(rank);
    return process.is_in_run || process.has_returned;
  };
  if (ranks.empty() || !std::ranges::all_of(ranks, has_entered)) return false;
  if (std::ranges::all_of(ranks, has_returned)) return true;
  bool has_others = !finished_.empty();
  for (const int other : table_.members()) {
    const bool is_one = std::ranges::find(ranks, other) != ranks.end();
    if (is_one || !table_.is_live(other)) continue;
    if (!has_returned(other)) return false;
    has_others = true;
  }
  return has_others;
}

bool TrainingEnd::has_come() const {
  bool has_returned = false;
  for (const int rank : table_.members()) {
    const JobProcess& process = table_.processes.at(rank);
    if (table_.is_live(rank) && process.is_in_run) return false;
    has_returned |= process.has_returned;
  }
  return has_returned;
}

void TrainingEnd::finished(int process, Clock::time_point now) {
  if (!finished_.empty()) finished_ += ", ";
  finished_ += table_.whose(process);
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
  for (const int process : table_.members()) {
    if (table_.is_live(process)) names.push_back(table_.whose(process));
  }
  if (names.empty()) return {};
  return cat("training is over, and the job waits for ", join(names, ", "));
}

}  // namespace hvd::launcher
