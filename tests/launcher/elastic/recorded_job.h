// A job for tests of Generations: records its orders, and sends it events.
#pragma once

#include <doctest/doctest.h>

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "launcher/elastic/generations.h"
#include "launcher/hosts/host_table.h"

namespace hvd::launcher {

using Time = Generations::Time;

// Records the orders of Generations, and starts processes at once. The clock counts seconds.
struct RecordedJob : GenerationActions {
  explicit RecordedJob(GenerationLimits limits = {}, std::optional<CooldownRange> cooldown = {})
      : history(HostPool({.hosts = limits.hosts, .cooldown = cooldown}, [] { return 0.0; })),
        generations(limits, *this, history, hosts) {}
  // Continues the history of an earlier launch.
  RecordedJob(GenerationLimits limits, const JobHistory& before)
      : history(before), generations(limits, *this, history, hosts) {}

  Time now() const {
    return Time() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(time));
  }

  HostRun& start_host(const Host& host, int slots) override {
    started.push_back(cat(host.name, ":", slots));
    return add({host.name, "", slots});
  }
  void start_processes(HostRun& host) override { begun.push_back(host.number()); }
  void restart() override { ++restarts; }
  void end_host(HostRun& host) override { ended.push_back(host.number()); }
  void end_process(RankRun& process) override { ended_processes.push_back(process.number()); }
  void begin_generation(const rendezvous::Generation& generation) override { record = generation; }
  void answer(const RankRun& run, const rendezvous::PlaceAnswer& answer) override {
    const int process = run.number();
    CHECK(run.place().request == requests[process]);
    if (answer.is_removed) return;
    if (answer.is_provisional) {
      provisional[process] = cat(answer.place.rank, "/", answer.place.size);
      if (enters_at_once) entering.push_back(process);
      return;
    }
    CHECK(answer.has_new_members == record.has_new_members());
    places[process] = answer.place.generation;
  }
  void notify_updates(int32_t generation, rendezvous::HostUpdates told) override {
    updates.push_back(cat(generation, ":", static_cast<int>(told)));
  }
  void notify_loss(int32_t generation, const std::string& sentence) override {
    losses.push_back(cat(generation, ": ", sentence));
  }
  void notify_leave(const HostRun& host, double seconds) override {
    leaves.push_back(cat(host.number(), ": ", seconds));
  }
  void report(const std::string& sentence) override { said.push_back(sentence); }
  void end_job(int code, const std::string& sentence, int) override {
    CHECK_FALSE(exit_code);
    exit_code = code;
    end = sentence;
  }

  // Begins the job with these hosts.
  void begin(const std::vector<Host>& list) {
    for (const Host& host : list) add(host);
    generations.discovered(list, now());
  }
  void ask(std::initializer_list<int> who) {
    for (const int process : who) {
      // The agent has started the process.
      hosts.rank(process).advance(PlaceState::kPlanned, PlaceState::kStarting);
      const auto place = places.find(process);
      generations.requested(
          process,
          {.number = ++requests[process], .generation = place == places.end() ? -1 : place->second},
          now());
      enter_all();
    }
  }
  // Requests the final place of a process that has a provisional place.
  void enter(int process,
             rendezvous::PlaceRequestFrom from = rendezvous::PlaceRequestFrom::kElasticRun) {
    generations.requested(process, {.number = ++requests[process], .from = from}, now());
  }
  void enter_all() {
    for (const int process : std::exchange(entering, {})) enter(process);
  }
  // Returns the process number of each rank: "3 4+"; + marks a new process.
  std::string ranks() const {
    std::vector<std::string> words;
    for (const auto& member : record.members) {
      words.push_back(cat(member.process, member.is_new ? "+" : ""));
    }
    return join(words, " ");
  }
  void wait(double seconds) {
    time += seconds;
    if (generations.next_time() <= now()) generations.on_time(now());
    enter_all();
  }

  HostRun& add(const Host& host) {
    return hosts.add(host, places_on(hosts, host.name, host.slots));
  }

  JobHistory history;
  HostTable hosts{SlotPlan{}};
  Generations generations;
  double time = 100;
  int restarts = 0;
  std::vector<int> begun;
  std::map<int, int64_t> requests;
  std::map<int, int32_t> places;
  std::map<int, std::string> provisional;  // "RANK/SIZE"
  bool enters_at_once = true;              // a process with a provisional place
  std::vector<int> entering;
  std::vector<std::string> started, updates, losses, leaves, said;
  std::vector<int> ended, ended_processes;
  rendezvous::Generation record;
  std::optional<int> exit_code;
  std::string end;
};

inline const std::vector<Host> kTwoHosts = {{"a", "", 2}, {"b", "", 2}};

// A job of two hosts whose four ranks have met.
struct TrainingJob : RecordedJob {
  explicit TrainingJob(GenerationLimits limits = {}) : RecordedJob(limits) {
    begin(kTwoHosts);
    ask({0, 1, 2, 3});
  }
};

inline GenerationLimits of_script(int least = 1) {
  GenerationLimits limits;
  limits.least = least;
  limits.hosts = HostSource::kScript;
  return limits;
}

}  // namespace hvd::launcher
