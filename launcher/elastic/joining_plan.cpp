#include "launcher/elastic/joining_plan.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "launcher/elastic/generation_plan.h"

namespace hvd::launcher {

bool JoiningPlan::is_prepared() const {
  return generation_ && std::ranges::all_of(generation_->members, [this](const Member& one) {
           const int process = one.incarnation;
           return table_.is_member(process) ||
                  table_.processes.at(process).phase == ProcessPhase::kAsking;
         });
}

std::set<int> JoiningPlan::newcomers() const {
  std::set<int> processes;
  if (!generation_) return processes;
  for (const Member& member : generation_->members) {
    const int process = member.incarnation;
    if (table_.is_live(process) && !table_.is_member(process)) processes.insert(process);
  }
  return processes;
}

std::vector<std::pair<int, rendezvous::PlaceAnswer>> JoiningPlan::answer_places(
    Clock::time_point now) {
  std::vector<std::pair<int, rendezvous::PlaceAnswer>> answers;
  if (!generation_) return answers;
  for (auto& [number, answer] : answers_by_process(*generation_)) {
    JobProcess& process = table_.processes.at(number);
    if (table_.is_member(number) || process.phase != ProcessPhase::kAsking) continue;
    if (process.provisional || process.takes_any_place) continue;
    process.phase = ProcessPhase::kPreparing;
    process.provisional = answer.place;
    process.since = now;
    answers.emplace_back(
        number, rendezvous::PlaceAnswer{
                    .place = answer.place, .has_new_members = true, .is_provisional = true});
  }
  return answers;
}

std::optional<Generation> with_newcomers(MembershipPlan plan) {
  auto* const generation = std::get_if<Generation>(&plan);
  if (generation == nullptr || !generation->has_new()) return std::nullopt;
  return std::move(*generation);
}

std::vector<int> misplaced(const ProcessTable& table, const std::set<int>& processes,
                           const Generation& generation) {
  const std::map<int, rendezvous::PlaceAnswer> answers = answers_by_process(generation);
  std::vector<int> found;
  for (const int number : processes) {
    const JobProcess& process = table.processes.at(number);
    if (!process.provisional || process.takes_any_place) continue;
    if (const auto answer = answers.find(number); answer != answers.end()) {
      rendezvous::Place place = answer->second.place;
      place.generation = process.provisional->generation;
      if (place == *process.provisional) continue;
    }
    found.push_back(number);
  }
  return found;
}

}  // namespace hvd::launcher
