// The ways between hosts, as values: whatever is sent is awaited, and everybody ends with all.
#include "collectives/algorithms/route.h"

#include <doctest/doctest.h>

#include <bit>
#include <set>

#include "base/text.h"

using namespace hvd;
using namespace hvd::collectives;

namespace {

constexpr Way kWays[] = {Way::kWhole, Way::kDoubling, Way::kDirect, Way::kHalving, Way::kRing};

using Contributions = std::multiset<size_t>;  // of hosts, to one element

std::vector<Leg> legs_with(const std::vector<Leg>& legs, size_t host) {
  std::vector<Leg> found;
  for (const Leg& leg : legs) {
    if (leg.host == host) found.push_back(leg);
  }
  return found;
}

bool same(const std::vector<Leg>& sent, const std::vector<Leg>& received) {
  if (sent.size() != received.size()) return false;
  for (size_t i = 0; i < sent.size(); ++i) {
    if (sent[i].part.first != received[i].part.first ||
        sent[i].part.count != received[i].part.count) {
      return false;
    }
  }
  return true;
}

// Plays all hosts; what each knows of each element in the end.
std::vector<std::vector<Contributions>> play(const std::vector<Route>& routes, size_t count) {
  const size_t hosts = routes.size();
  std::vector<std::vector<Contributions>> known(hosts, std::vector<Contributions>(count));
  for (size_t host = 0; host < hosts; ++host) {
    for (auto& element : known[host]) element = {host};
  }
  for (size_t hop = 0; hop < routes[0].hops.size(); ++hop) {
    const auto before = known;
    for (size_t host = 0; host < hosts; ++host) {
      for (const Leg& leg : routes[host].hops[hop].receives) {
        for (size_t i = leg.part.first; i < leg.part.first + leg.part.count; ++i) {
          if (hop < routes[host].reducing) {
            known[host][i].insert(before[leg.host][i].begin(), before[leg.host][i].end());
          } else {
            known[host][i] = before[leg.host][i];
          }
        }
      }
    }
  }
  return known;
}

}  // namespace

TEST_CASE("on every way each host ends with every host's part of every element, once") {
  const size_t most = HVD_TEST_SANITIZED ? 9 : 17;
  for (const Way way : kWays) {
    for (size_t hosts = 2; hosts <= most; ++hosts) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{100}, size_t{1003}}) {
        CAPTURE(static_cast<int>(way));
        CAPTURE(hosts);
        CAPTURE(count);
        std::vector<Route> routes;
        Contributions all;
        for (size_t host = 0; host < hosts; ++host) {
          routes.push_back(make_route(way, hosts, host, count, 4));
          all.insert(host);
        }
        for (size_t host = 0; host < hosts; ++host) {
          REQUIRE(routes[host].hops.size() == routes[0].hops.size());
          REQUIRE(routes[host].reducing == routes[0].reducing);
        }
        bool matched = true;
        for (size_t hop = 0; hop < routes[0].hops.size(); ++hop) {
          for (size_t a = 0; a < hosts; ++a) {
            for (size_t b = 0; b < hosts; ++b) {
              matched &= same(legs_with(routes[a].hops[hop].sends, b),
                              legs_with(routes[b].hops[hop].receives, a));
            }
          }
        }
        CHECK(matched);
        bool complete = true;
        for (const auto& known : play(routes, count)) {
          for (const auto& element : known) complete &= element == all;
        }
        CHECK(complete);
      }
    }
  }
}

TEST_CASE("what is reduced last is what a host owns") {
  for (const Way way : kWays) {
    for (size_t hosts = 2; hosts <= 9; ++hosts) {
      for (size_t host = 0; host < hosts; ++host) {
        const Route route = make_route(way, hosts, host, 1000, 2);
        if (route.own.count == 0) continue;
        REQUIRE(route.last_reducing < route.reducing);
        const Leg& leg = route.hops[route.last_reducing].receives.front();
        CHECK(leg.part.first == route.own.first);
        CHECK(leg.part.count == route.own.count);
      }
    }
  }
}

TEST_CASE("hops and bytes of each way grow as they should") {
  constexpr size_t kCount = 64 * 16;
  const auto sent = [](const Route& route) {
    size_t elements = 0;
    for (const Hop& hop : route.hops) {
      for (const Leg& leg : hop.sends) elements += leg.part.count;
    }
    return elements;
  };
  for (const size_t hosts : {size_t{2}, size_t{8}, size_t{16}, size_t{64}}) {
    const auto log = static_cast<size_t>(std::bit_width(hosts) - 1);
    for (size_t host = 0; host < hosts; ++host) {
      const auto route = [&](Way way) { return make_route(way, hosts, host, kCount, 4); };
      CHECK(sent(route(Way::kDoubling)) == log * kCount);
      for (const Way way : {Way::kDirect, Way::kHalving, Way::kRing}) {
        CHECK(sent(route(way)) == 2 * kCount * (hosts - 1) / hosts);
      }
      CHECK(route(Way::kHalving).hops.size() == 2 * log);
      CHECK(route(Way::kRing).hops.size() == 2 * (hosts - 1));
    }
  }
}

TEST_CASE(
    "two hosts exchange wholes for longer than more of them, unless somebody says otherwise") {
  constexpr size_t kMiB = size_t{1} << 20;
  CHECK(choose_way({}, 2, kMiB) == Way::kWhole);
  CHECK(choose_way({}, 2, 8 * kMiB) == Way::kDirect);
  CHECK(choose_way({}, 3, kMiB) == Way::kDirect);
  hvd_tuning chosen{};
  chosen.struct_size = sizeof chosen;
  chosen.whole_limit = 4096;
  hvd_batch batch{};
  batch.struct_size = sizeof batch;
  batch.tuning = &chosen;
  CHECK(choose_way(tuning_of(batch), 2, 4096) == Way::kWhole);
  CHECK(choose_way(tuning_of(batch), 2, 4100) == Way::kDoubling);
  CHECK(choose_way(tuning_of(batch), 2, kMiB) == Way::kDirect);
}
