#include "launcher/elastic/deadlines.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "launcher/elastic/capacity.h"

namespace hvd::launcher {
namespace {

using std::chrono::seconds;

}  // namespace

void Deadlines::generation_began(Time now) {
  if (!hosts_.has_members()) {
    first_start_ = now - begun_;
    first_began_ = now;
  }
  asking_since_.reset();
  has_named_silent_ = false;
  lost_since_.reset();
  unaware_.stop();
}

void Deadlines::entered_elastic_run(Time now) {
  if (hosts_.has_members()) first_work_ = now - first_began_;
}

void Deadlines::asked(Time now) { asking_since_ = asking_since_.value_or(now); }

void Deadlines::rank_lost(Time now) {
  lost_since_ = lost_since_.value_or(now);
  unaware_.start(now + Reminder::kInterval);
}

Deadlines::Time Deadlines::end_of_entry() const {
  return begun_ + duration_of(limits_.return_seconds);
}

// Returns the processes that the next generation waits for.
std::vector<const RankRun*> Deadlines::awaited() const {
  std::vector<const RankRun*> found;
  for (const RankRun& process : hosts_.ranks()) {
    const bool is_awaited = process.place_state() == PlaceState::kMember ||
                            (!hosts_.has_members() && process.is_coming());
    if (is_awaited) found.push_back(&process);
  }
  return found;
}

Deadlines::Finding Deadlines::silent(Time now) {
  Finding finding;
  if (!asking_since_ || all_have_asked(hosts_)) return finding;
  Time since = *asking_since_;
  const std::vector<const RankRun*> silent = awaited();
  for (const RankRun* process : silent) since = std::max(since, process->place().since);
  // The first ranks get the limit of a job of constant size: they also import modules and load data.
  const double limit_seconds = hosts_.has_members() ? limits_.return_seconds : limits_.init_seconds;
  const Time limit = since + duration_of(limit_seconds);
  if (now >= limit) {
    for (const RankRun* process : silent) {
      finding.late.push_back(
          {process->number(),
           cat(process->describe(), " has not called hvd.init within ", limit_seconds,
               " s of the others (", hosts_.has_members() ? "--start-timeout" : "--init-timeout",
               ")")});
    }
    return finding;
  }
  const Time named = *asking_since_ + kUntilNamed;
  if (now >= named && !std::exchange(has_named_silent_, true)) {
    std::vector<std::string> names;
    names.reserve(silent.size());
    for (const RankRun* process : silent) names.push_back(process->describe());
    finding.reminders.push_back(cat(hosts_.has_members() ? "the next" : "the first",
                                    " generation waits for ", join(names, ", "), ", up to ",
                                    limit_seconds, " s"));
  }
  finding.next = has_named_silent_ ? limit : std::min(limit, named);
  return finding;
}

Deadlines::Finding Deadlines::slow(Time now) {
  Finding finding;
  if (!hosts_.has_members()) return finding;
  std::erase_if(slow_, [this](const auto& one) {
    return hosts_.rank(one.first).place_state() != PlaceState::kStarting;
  });
  // The start of the first ranks has shown how long the program runs before it calls hvd.init.
  const Clock::duration limit = first_start_ + duration_of(limits_.return_seconds);
  const auto in_seconds = [](Clock::duration time) {
    return std::chrono::round<seconds>(time).count();
  };
  for (const RankRun& process : hosts_.ranks()) {
    if (process.place_state() != PlaceState::kStarting) continue;
    const int number = process.number();
    const Time since = process.place().since;
    const Time end = since + limit;
    const std::string silence = cat(process.describe(), " has not called hvd.init within ");
    if (now >= end) {
      const auto beyond = in_seconds(first_start_);
      finding.late.push_back({number, cat(silence, in_seconds(limit), " s of its start",
                                          beyond == 0 ? ""
                                                      : cat(", ", limits_.return_seconds,
                                                            " s more than the first ranks needed"),
                                          " (--start-timeout)")});
      continue;
    }
    Reminder& reminder = slow_[number];
    reminder.start(since + Reminder::kInterval);
    if (reminder.is_due(now)) {
      finding.reminders.push_back(cat(silence, in_seconds(now - since),
                                      " s of its start; it will be ended after ", in_seconds(limit),
                                      " s"));
    }
    finding.next = std::min({finding.next, end, reminder.next()});
  }
  return finding;
}

Deadlines::Finding Deadlines::unprepared(Time now) {
  Finding finding;
  // The first ranks have shown how long the program runs between hvd.init and hvd.elastic.run.
  const Clock::duration limit = first_work_ + duration_of(limits_.return_seconds);
  const auto in_words = cat(std::chrono::ceil<seconds>(limit).count(), " s");
  std::vector<std::string> names;
  Time first = Time::max();  // when the first of these processes got its place
  for (const RankRun& process : hosts_.ranks()) {
    if (process.place_state() != PlaceState::kPreparing) continue;
    if (now >= process.place().since + limit) {
      finding.late.push_back(
          {process.number(),
           cat(process.describe(),
               " has not entered hvd.elastic.run, nor called a collective, within ", in_words,
               " of its hvd.init (--start-timeout)")});
      continue;
    }
    first = std::min(first, process.place().since);
    names.push_back(process.describe());
  }
  if (names.empty()) {
    unprepared_.stop();
    return finding;
  }
  unprepared_.start(first + kUntilNamed);
  if (unprepared_.is_due(now)) {
    finding.reminders.push_back(cat("the next generation waits for ", join(names, ", "),
                                    names.size() == 1 ? ", which is new," : ", which are new,",
                                    " to enter hvd.elastic.run, up to ", in_words, " after ",
                                    names.size() == 1 ? "its" : "their",
                                    " hvd.init (--start-timeout)"));
  }
  finding.next = std::min(unprepared_.next(), first + limit);
  return finding;
}

Deadlines::Finding Deadlines::unaware(Time now, const std::string& failure) {
  Finding finding;
  if (!lost_since_ || asking_since_ || !hosts_.has_members()) return finding;
  std::vector<std::string> names;
  for (const RankRun* rank : hosts_.members()) {
    if (!rank->is_gone()) names.push_back(rank->describe());
  }
  // The other ranks may be stopped, or may compute for long without an operation of Horovod.
  const Time end = *lost_since_ + duration_of(limits_.pause_seconds);
  if (now >= end) {
    finding.end =
        cat(join(names, ", "), names.size() == 1 ? " has" : " have", " not called Horovod within ",
            limits_.pause_seconds,
            " s of that (--elastic-timeout); horovodrun stack shows where these ranks are");
    return finding;
  }
  if (unaware_.is_due(now)) {
    finding.reminders.push_back(cat(
        "the next generation waits until ", join(names, ", "),
        names.size() == 1 ? " calls Horovod and notices that " : " call Horovod and notice that ",
        failure));
  }
  finding.next = std::min(end, unaware_.next());
  return finding;
}

}  // namespace hvd::launcher
