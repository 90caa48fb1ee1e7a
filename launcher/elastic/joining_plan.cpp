#include "launcher/elastic/joining_plan.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "launcher/elastic/generation_plan.h"

namespace hvd::launcher {

bool JoiningPlan::is_prepared() const {
  return generation_ && std::ranges::all_of(generation_->members, [this](const Member& one) {
           const RankRun& process = hosts_.rank(one.incarnation);
           return process.is_member() || process.place_state() == PlaceState::kAsking;
         });
}

std::set<int> JoiningPlan::newcomers() const {
  std::set<int> processes;
  if (!generation_) return processes;
  for (const Member& member : generation_->members) {
    const RankRun& process = hosts_.rank(member.incarnation);
    if (!process.is_gone() && !process.is_member()) processes.insert(process.number());
  }
  return processes;
}

std::vector<std::pair<RankRun*, rendezvous::PlaceAnswer>> JoiningPlan::answer_places(
    Clock::time_point now) {
  std::vector<std::pair<RankRun*, rendezvous::PlaceAnswer>> answers;
  if (!generation_) return answers;
  for (auto& [number, answer] : answers_by_process(*generation_)) {
    RankRun& process = hosts_.rank(number);
    if (process.is_member() || process.place_state() != PlaceState::kAsking) continue;
    PlaceRecord& place = process.place();
    if (place.provisional || place.takes_any_place) continue;
    process.to(PlaceState::kPreparing);
    place.provisional = answer.place;
    place.since = now;
    answers.emplace_back(
        &process, rendezvous::PlaceAnswer{
                      .place = answer.place, .has_new_members = true, .is_provisional = true});
  }
  return answers;
}

std::optional<Generation> with_newcomers(MembershipPlan plan) {
  auto* const generation = std::get_if<Generation>(&plan);
  if (generation == nullptr || !generation->has_new()) return std::nullopt;
  return std::move(*generation);
}

std::vector<RankRun*> misplaced(HostTable& hosts, const std::set<int>& processes,
                                const Generation& generation) {
  const std::map<int, rendezvous::PlaceAnswer> answers = answers_by_process(generation);
  std::vector<RankRun*> found;
  for (const int number : processes) {
    RankRun& process = hosts.rank(number);
    const PlaceRecord& record = process.place();
    if (!record.provisional || record.takes_any_place) continue;
    if (const auto answer = answers.find(number); answer != answers.end()) {
      rendezvous::Place place = answer->second.place;
      place.generation = record.provisional->generation;
      if (place == *record.provisional) continue;
    }
    found.push_back(&process);
  }
  return found;
}

}  // namespace hvd::launcher
