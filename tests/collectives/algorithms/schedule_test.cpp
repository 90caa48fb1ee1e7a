// Schedules between hosts: each send has a receive, and each host ends with the sum.
#include "collectives/algorithms/schedule.h"

#include <doctest/doctest.h>

#include <bit>
#include <set>

#include "base/text.h"

using namespace hvd;
using namespace hvd::collectives;

namespace {

constexpr Algorithm kAlgorithms[] = {Algorithm::kOneShot, Algorithm::kRecursiveDoubling,
                                     Algorithm::kTwoShot, Algorithm::kHalvingDoubling,
                                     Algorithm::kRing};

using Contributions = std::multiset<size_t>;  // the hosts that contributed to one element

std::vector<Transfer> transfers_with(const std::vector<Transfer>& transfers, size_t host) {
  std::vector<Transfer> found;
  for (const Transfer& transfer : transfers) {
    if (transfer.host == host) found.push_back(transfer);
  }
  return found;
}

bool same(const std::vector<Transfer>& sent, const std::vector<Transfer>& received) {
  if (sent.size() != received.size()) return false;
  for (size_t i = 0; i < sent.size(); ++i) {
    if (sent[i].part.first != received[i].part.first ||
        sent[i].part.count != received[i].part.count) {
      return false;
    }
  }
  return true;
}

// Simulates all hosts. Returns each host's contributions to each element at the end.
std::vector<std::vector<Contributions>> play(const std::vector<Schedule>& schedules, size_t count) {
  const size_t hosts = schedules.size();
  std::vector<std::vector<Contributions>> known(hosts, std::vector<Contributions>(count));
  for (size_t host = 0; host < hosts; ++host) {
    for (auto& element : known[host]) element = {host};
  }
  for (size_t hop = 0; hop < schedules[0].hops.size(); ++hop) {
    const auto before = known;
    for (size_t host = 0; host < hosts; ++host) {
      for (const Transfer& transfer : schedules[host].hops[hop].receives) {
        for (size_t i = transfer.part.first; i < transfer.part.first + transfer.part.count; ++i) {
          if (hop < schedules[host].reducing) {
            known[host][i].insert(before[transfer.host][i].begin(), before[transfer.host][i].end());
          } else {
            known[host][i] = before[transfer.host][i];
          }
        }
      }
    }
  }
  return known;
}

}  // namespace

TEST_CASE("with each algorithm each host ends with every host's part of every element, once") {
  const size_t most = HVD_TEST_SANITIZED ? 9 : 17;
  for (const Algorithm algorithm : kAlgorithms) {
    for (size_t hosts = 2; hosts <= most; ++hosts) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{100}, size_t{1003}}) {
        CAPTURE(static_cast<int>(algorithm));
        CAPTURE(hosts);
        CAPTURE(count);
        std::vector<Schedule> schedules;
        Contributions all;
        for (size_t host = 0; host < hosts; ++host) {
          schedules.push_back(make_schedule(algorithm, hosts, host, count, 4));
          all.insert(host);
        }
        for (size_t host = 0; host < hosts; ++host) {
          REQUIRE(schedules[host].hops.size() == schedules[0].hops.size());
          REQUIRE(schedules[host].reducing == schedules[0].reducing);
        }
        bool matched = true;
        for (size_t hop = 0; hop < schedules[0].hops.size(); ++hop) {
          for (size_t a = 0; a < hosts; ++a) {
            for (size_t b = 0; b < hosts; ++b) {
              matched &= same(transfers_with(schedules[a].hops[hop].sends, b),
                              transfers_with(schedules[b].hops[hop].receives, a));
            }
          }
        }
        CHECK(matched);
        bool complete = true;
        for (const auto& known : play(schedules, count)) {
          for (const auto& element : known) complete &= element == all;
        }
        CHECK(complete);
      }
    }
  }
}

TEST_CASE("the chunk that is reduced last is the chunk that a host owns") {
  for (const Algorithm algorithm : kAlgorithms) {
    for (size_t hosts = 2; hosts <= 9; ++hosts) {
      for (size_t host = 0; host < hosts; ++host) {
        const Schedule schedule = make_schedule(algorithm, hosts, host, 1000, 2);
        if (schedule.own.count == 0) continue;
        REQUIRE(schedule.last_reducing < schedule.reducing);
        const Transfer& transfer = schedule.hops[schedule.last_reducing].receives.front();
        CHECK(transfer.part.first == schedule.own.first);
        CHECK(transfer.part.count == schedule.own.count);
      }
    }
  }
}

TEST_CASE("hops and bytes of each algorithm grow as they should") {
  constexpr size_t kCount = 64 * 16;
  const auto sent = [](const Schedule& schedule) {
    size_t elements = 0;
    for (const Hop& hop : schedule.hops) {
      for (const Transfer& transfer : hop.sends) elements += transfer.part.count;
    }
    return elements;
  };
  for (const size_t hosts : {size_t{2}, size_t{8}, size_t{16}, size_t{64}}) {
    const auto log = static_cast<size_t>(std::bit_width(hosts) - 1);
    for (size_t host = 0; host < hosts; ++host) {
      const auto schedule = [&](Algorithm algorithm) {
        return make_schedule(algorithm, hosts, host, kCount, 4);
      };
      CHECK(sent(schedule(Algorithm::kRecursiveDoubling)) == log * kCount);
      for (const Algorithm algorithm :
           {Algorithm::kTwoShot, Algorithm::kHalvingDoubling, Algorithm::kRing}) {
        CHECK(sent(schedule(algorithm)) == 2 * kCount * (hosts - 1) / hosts);
      }
      CHECK(schedule(Algorithm::kHalvingDoubling).hops.size() == 2 * log);
      CHECK(schedule(Algorithm::kRing).hops.size() == 2 * (hosts - 1));
    }
  }
}

TEST_CASE("two hosts use one-shot up to a larger size than more hosts do, unless tuned otherwise") {
  constexpr size_t kMiB = size_t{1} << 20;
  CHECK(choose_algorithm({}, 2, kMiB) == Algorithm::kOneShot);
  CHECK(choose_algorithm({}, 2, 8 * kMiB) == Algorithm::kTwoShot);
  CHECK(choose_algorithm({}, 3, kMiB) == Algorithm::kTwoShot);
  hvd_tuning chosen{};
  chosen.struct_size = sizeof chosen;
  chosen.whole_limit = 4096;
  hvd_batch batch{};
  batch.struct_size = sizeof batch;
  batch.tuning = &chosen;
  CHECK(choose_algorithm(tuning_of(batch), 2, 4096) == Algorithm::kOneShot);
  CHECK(choose_algorithm(tuning_of(batch), 2, 4100) == Algorithm::kRecursiveDoubling);
  CHECK(choose_algorithm(tuning_of(batch), 2, kMiB) == Algorithm::kTwoShot);
}
