#include "launcher/observe/rules/straggler_cause.h"

#include <doctest/doctest.h>

namespace hvd::launcher {
namespace {

// Rank 1 of four is 10 ms late in steps of 50 ms, for 2.5 s. `worse`: its additional pressure.
StragglerCause cause(const RankPressure& worse, int blocked = 0,
                     uint64_t run_delay_of_all = 30'000) {
  const StragglerFinding finding{.ranks = {1}, .late_seconds = 0.010, .step_seconds = 0.050};
  PressureRecord record;
  CHECK(!record.is_whole());
  for (int look = 0; look < 5; ++look) {
    PressureRecord::Pressures pressures;
    for (int rank = 0; rank < 4; ++rank) {
      // Every rank has a base load of each kind.
      RankPressure each{{.rank = rank, .throttled_microseconds = 70'000},
                        {.processors = 8, .retransmits = 3}};
      ProcessUsage& usage = each.rank.usage;
      usage.run_delay_microseconds = 1'000'000;
      usage.major_faults = 500;
      if (look == 4) {
        usage.run_delay_microseconds += run_delay_of_all;
        usage.major_faults += 5;
        if (rank == 1) {
          usage.run_delay_microseconds += worse.rank.usage.run_delay_microseconds;
          usage.major_faults += worse.rank.usage.major_faults;
          each.rank.throttled_microseconds += worse.rank.throttled_microseconds;
          each.host.steal_microseconds += worse.host.steal_microseconds;
          each.host.swapped_in += worse.host.swapped_in;
          each.host.retransmits += worse.host.retransmits;
        }
      }
      each.rank.is_on_disk = rank == 1 && look < blocked ? 1 : 0;
      pressures[rank] = each;
    }
    record.take(pressures, 0.625 * look);
  }
  CHECK(record.is_whole());
  return cause_of(finding, record.growth());
}

}  // namespace

TEST_CASE("a cause explains a third of the lateness, and is not that of all ranks") {
  CHECK((cause({}).text == "the program itself" && !cause({}).is_of_host));
  CHECK(cause({{.usage = {.run_delay_microseconds = 60'000}}}).text == "the program itself");
  const StragglerCause delay = cause({{.usage = {.run_delay_microseconds = 400'000}}});
  CHECK(delay.text ==
        "its threads wait for a processor for 9.6 ms of each step (run delay): other processes use "
        "the "
        "host");
  CHECK(delay.is_of_host);
  CHECK(cause({{.throttled_microseconds = 450'000}}).text ==
        "a CPU quota stops its cgroup for 11 ms of each step");
  CHECK(cause({{}, {.steal_microseconds = 2'000'000}}).text ==
        "the hypervisor takes 10 % of the host's processors (steal)");
  CHECK(cause({{.usage = {.major_faults = 400}}}).text ==
        "10 page faults in each step read from storage (major faults)");
  CHECK(cause({{.usage = {.major_faults = 400}}, {.swapped_in = 800}}).text ==
        "10 page faults in each step read from swap: the host has too little memory");
  CHECK(cause({{}, {.retransmits = 60}}).text ==
        "its host sends 60 TCP segments again in 42 steps "
        "(retransmits)");
  CHECK(cause({}, 4).text ==
        "its process waits for storage or a network file system, in 4 of 5 looks "
        "(uninterruptible sleep)");
  const StragglerCause contended = cause({}, 0, 200'000);
  CHECK(contended.text ==
        "the program itself, or other processes: the ranks of its host wait for a processor for "
        "4.8 ms of each step (run delay)");
  CHECK(!contended.is_of_host);
  CHECK(cause_of({.ranks = {1}, .late_seconds = 1, .step_seconds = 1}, {}).text ==
        "the program itself");
}

}  // namespace hvd::launcher
