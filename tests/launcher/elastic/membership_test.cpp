#include "launcher/elastic/membership.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/text.h"

namespace hvd::launcher {
namespace {

// Parses hosts such as "a:2 b:1".
std::vector<UsableHost> usable_hosts(std::string_view text) {
  std::vector<UsableHost> hosts;
  for (const std::string_view word : words_of(text)) {
    const auto parts = split(word, ':');
    hosts.push_back({{parts[0], "", static_cast<int>(*parse_int(parts[1]))}});
  }
  return hosts;
}

// Gives each host as many started processes as its survivors leave slots free, with consecutive
// numbers.
void start_processes(MembershipChange& change, Incarnation next) {
  for (UsableHost& host : change.usable) {
    const auto survivors = std::ranges::count_if(change.previous.members, [&](const Member& each) {
      return each.host == host.host.name && !change.ended.contains(each.incarnation) &&
             !change.leaving.contains(each.incarnation);
    });
    for (auto free = host.host.slots - survivors; free > 0; --free) {
      host.started.push_back({-1, next++});
    }
  }
}

// The members by rank: "a0=1 a1=2* b0=3"; a star marks new members.
std::string text_of(const std::vector<Member>& members) {
  std::vector<std::string> words;
  for (const Member& member : members) {
    words.push_back(
        cat(member.host, member.slot, "=", member.incarnation, member.is_new ? "*" : ""));
  }
  return join(words, " ");
}

std::string text_of(const MembershipPlan& plan) {
  if (const auto* next = std::get_if<Generation>(&plan)) return text_of(next->members);
  if (const auto* few = std::get_if<TooFew>(&plan)) {
    return cat("too few: ", few->slots, " of ", few->min);
  }
  return "no survivor";
}

// An elastic job that accepts each plan.
class Job {
 public:
  explicit Job(int min = 1, std::optional<int> max = {}) {
    change_.min = min;
    change_.max = max;
  }

  // Returns the plan as text for these usable hosts.
  std::string discover(std::string_view usable) {
    change_.usable = usable_hosts(usable);
    start_processes(change_, next_incarnation_);
    const MembershipPlan plan = plan_membership(change_);
    if (const auto* next = std::get_if<Generation>(&plan)) accept(*next);
    return text_of(plan);
  }
  Job& end(std::set<Incarnation> ended) {
    change_.ended.merge(ended);
    return *this;
  }
  Job& leave(std::set<Incarnation> leaving) {
    change_.leaving.merge(leaving);
    return *this;
  }
  MembershipChange& change() { return change_; }
  const Generation& generation() const { return change_.previous; }
  std::string removed() const { return text_of(generation().removed); }

 private:
  void accept(const Generation& next) {
    CHECK(next.number == change_.number);
    change_.previous = next;
    ++change_.number;
    for (const Member& member : next.members) {
      next_incarnation_ = std::max(next_incarnation_, member.incarnation + 1);
    }
  }

  MembershipChange change_;
  Incarnation next_incarnation_ = 1;
};

}  // namespace

TEST_CASE("the first generation fills the hosts in the order of discovery") {
  Job job;
  CHECK(job.discover("z:2 a:1") == "z0=1* z1=2* a0=3*");
  CHECK(job.generation().number == 1);
  CHECK(job.generation().has_new());
  CHECK(job.generation().removed.empty());
}

TEST_CASE("the first generation takes all slots up to the maximum, once there is the minimum") {
  CHECK(Job(4).discover("a:2 b:1") == "too few: 3 of 4");
  CHECK(Job(4).discover("") == "too few: 0 of 4");
  CHECK(Job(2).discover("a:2 b:2") == "a0=1* a1=2* b0=3* b1=4*");
  CHECK(Job(2, 3).discover("a:2 b:2 c:2") == "a0=1* a1=2* b0=3*");
}

TEST_CASE("a host that appears is appended, wherever it is printed") {
  Job job;
  CHECK(job.discover("b:1") == "b0=1*");
  CHECK(job.discover("a:1 b:1") == "b0=1 a0=2*");
  CHECK(job.discover("d:1 b:1 c:1 a:1") == "b0=1 a0=2 d0=3* c0=4*");
  CHECK(job.generation().number == 3);
}

TEST_CASE("a host that leaves is dropped, and one that comes back is new and last") {
  Job job;
  CHECK(job.discover("a:1 b:2 c:1") == "a0=1* b0=2* b1=3* c0=4*");
  CHECK(job.discover("a:1 c:1") == "a0=1 c0=4");
  CHECK(job.removed() == "b0=2* b1=3*");
  CHECK_FALSE(job.generation().has_new());
  CHECK(job.discover("a:1 b:2 c:1") == "a0=1 c0=4 b0=5* b1=6*");
  CHECK(job.removed() == "");
}

TEST_CASE("slots of an early host that grow and shrink shift the ranks of later hosts") {
  Job job;
  CHECK(job.discover("a:1 b:1") == "a0=1* b0=2*");
  CHECK(job.discover("a:3 b:1") == "a0=1 a1=3* a2=4* b0=2");
  CHECK(job.discover("a:2 b:1") == "a0=1 a1=3 b0=2");
  CHECK(job.removed() == "a2=4*");
}

TEST_CASE("grow, then shrink to the second host alone") {
  Job job;
  CHECK(job.discover("localhost:2") == "localhost0=1* localhost1=2*");
  CHECK(job.discover("localhost:2 127.0.0.1:2") ==
        "localhost0=1 localhost1=2 127.0.0.10=3* 127.0.0.11=4*");
  CHECK(job.discover("127.0.0.1:2") == "127.0.0.10=3 127.0.0.11=4");
  CHECK(job.generation().number == 3);
  CHECK(job.removed() == "localhost0=1 localhost1=2");
}

TEST_CASE("a spare beyond the maximum changes nothing, and takes the place of a host that leaves") {
  Job job(2, 4);
  CHECK(job.discover("a:2 b:2") == "a0=1* a1=2* b0=3* b1=4*");
  CHECK(job.discover("a:2 b:2 c:2") == "a0=1 a1=2 b0=3 b1=4");
  CHECK(job.discover("c:2 a:3 b:2") == "a0=1 a1=2 b0=3 b1=4");
  CHECK(job.discover("c:2 b:2") == "b0=3 b1=4 c0=5* c1=6*");
}

TEST_CASE("a free slot is used at the next change") {
  Job job(1, 3);
  CHECK(job.discover("a:2 b:2") == "a0=1* a1=2* b0=3*");
  CHECK(job.discover("b:2") == "b0=3 b1=4*");
}

TEST_CASE("no process is ended to start another one, whatever grows") {
  Job job(1, 4);
  CHECK(job.discover("a:2 b:2") == "a0=1* a1=2* b0=3* b1=4*");
  CHECK(job.discover("a:4 b:2") == "a0=1 a1=2 b0=3 b1=4");
  CHECK(job.end({4}).discover("a:4 b:2") == "a0=1 a1=2 a2=5* b0=3");
}

TEST_CASE("a lower maximum leaves the last slots of the newest hosts empty") {
  Job job(1, 6);
  CHECK(job.discover("a:2 b:2 c:2") == "a0=1* a1=2* b0=3* b1=4* c0=5* c1=6*");
  job.change().max = 3;
  CHECK(job.discover("a:2 b:2 c:2") == "a0=1 a1=2 b0=3");
  CHECK(job.removed() == "b1=4* c0=5* c1=6*");
}

TEST_CASE("below the minimum the job pauses, and its members are survivors afterwards") {
  Job job(3);
  CHECK(job.discover("a:2 b:2") == "a0=1* a1=2* b0=3* b1=4*");
  CHECK(job.end({3}).discover("a:2") == "too few: 2 of 3");
  CHECK(job.discover("") == "too few: 0 of 3");
  CHECK(job.discover("a:2 c:2") == "a0=1 a1=2 c0=5* c1=6*");
  CHECK(job.removed() == "b1=4*");
}

TEST_CASE("a host that cools down during a pause gets new processes") {
  Job job(4);
  CHECK(job.discover("a:2 b:2") == "a0=1* a1=2* b0=3* b1=4*");
  CHECK(job.end({1, 2}).discover("b:2") == "too few: 2 of 4");
  CHECK(job.discover("a:2 b:2") == "b0=3 b1=4 a0=5* a1=6*");
}

TEST_CASE("a job without a survivor has no next generation") {
  Job job;
  CHECK(job.discover("a:1 b:1") == "a0=1* b0=2*");
  CHECK(job.discover("c:1 d:1") == "no survivor");
  CHECK(job.end({1, 2}).discover("a:1 b:1") == "no survivor");
  CHECK(job.discover("") == "no survivor");
}

TEST_CASE("a failed rank is started again on its host, and rank 0 is a survivor") {
  Job job;
  CHECK(job.discover("a:3 b:2") == "a0=1* a1=2* a2=3* b0=4* b1=5*");
  CHECK(job.end({2}).discover("a:3 b:2") == "a0=1 a1=6* a2=3 b0=4 b1=5");
  CHECK(job.end({1}).discover("a:3 b:2") == "a0=6 a1=7* a2=3 b0=4 b1=5");
  // Only rank 0 sends the state, so slot 0 of another host may have a new process.
  CHECK(job.end({4}).discover("a:3 b:2") == "a0=6 a1=7 a2=3 b0=8* b1=5");
  CHECK(job.end({6, 7, 3}).discover("a:3 b:2") == "b0=8 b1=5 a0=9* a1=10* a2=11*");
}

TEST_CASE("survivors keep their slots when others of their host fail and slots shrink") {
  Job job;
  CHECK(job.discover("a:4") == "a0=1* a1=2* a2=3* a3=4*");
  CHECK(job.end({2}).discover("a:3") == "a0=1 a1=4 a2=3");
  CHECK(job.discover("a:1") == "a0=1");
  CHECK(job.removed() == "a1=4 a2=3");
}

TEST_CASE("a member that must leave has no place") {
  Job job;
  CHECK(job.discover("a:3") == "a0=1* a1=2* a2=3*");
  CHECK(job.leave({1}).discover("a:2") == "a0=3 a1=2");
  CHECK(job.removed() == "a0=1*");
}

TEST_CASE("the same hosts give a new generation of the same members") {
  Job job;
  CHECK(job.discover("a:1 b:1") == "a0=1* b0=2*");
  CHECK(job.discover("b:1 a:1") == "a0=1 b0=2");
  CHECK(job.generation().number == 2);
  CHECK_FALSE(job.generation().has_new());
}

TEST_CASE("names that are swapped change the members and not their number") {
  Job job;
  CHECK(job.discover("a:2 b:2") == "a0=1* a1=2* b0=3* b1=4*");
  CHECK(job.discover("b:2 c:2") == "b0=3 b1=4 c0=5* c1=6*");
}

TEST_CASE(
    "processes that were started beforehand come first, in their slots where those are free") {
  Job job;
  CHECK(job.discover("a:2") == "a0=1* a1=2*");
  job.change().usable = usable_hosts("a:3 b:3");
  job.change().usable[0].started = {{2, 20}, {3, 21}};
  job.change().usable[1].started = {{2, 31}, {0, 30}, {0, 32}};
  CHECK(text_of(plan_membership(job.change())) == "a0=1 a1=2 a2=20* b0=30* b1=32* b2=31*");
  // Only two processes of b are ready: they fill its first slots.
  job.change().usable = usable_hosts("a:2 b:2");
  job.change().usable[1].started = {{2, 31}, {1, 32}};
  CHECK(text_of(plan_membership(job.change())) == "a0=1 a1=2 b0=31* b1=32*");
}

TEST_CASE("a plan whose newcomers fail is made again from the last complete generation") {
  Job job;
  CHECK(job.discover("a:1") == "a0=1*");
  MembershipChange next = job.change();
  next.usable = usable_hosts("a:1 b:1");
  next.usable[1].started = {{0, 2}};
  CHECK(text_of(plan_membership(next)) == "a0=1 b0=2*");
  next.number = 3;
  next.usable[1].started = {{0, 3}};
  const MembershipPlan again = plan_membership(next);
  CHECK(text_of(again) == "a0=1 b0=3*");
  CHECK(std::get<Generation>(again).number == 3);
  CHECK(std::get<Generation>(again).removed.empty());
}

TEST_CASE("any schedule of hosts and failures keeps the rules") {
  std::mt19937 random(17);
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  int formed = 0, lost = 0, paused = 0;
  for (int round = 0; round < 200; ++round) {
    MembershipChange change;
    change.min = 1 + below(3);
    if (below(2) == 0) change.max = change.min + below(6);
    Incarnation next_incarnation = 1;
    for (int step = 0; step < 20; ++step) {
      change.usable.clear();
      int total = 0;
      for (char name = 'a'; name < 'f'; ++name) {
        if (below(3) == 0) continue;
        change.usable.push_back({{std::string(1, name), "", 1 + below(3)}});
        total += change.usable.back().host.slots;
      }
      std::shuffle(change.usable.begin(), change.usable.end(), random);
      for (const Member& member : change.previous.members) {
        if (below(8) == 0) change.ended.insert(member.incarnation);
      }
      start_processes(change, next_incarnation);
      const MembershipPlan plan = plan_membership(change);
      if (std::holds_alternative<TooFew>(plan)) {
        CHECK(total < change.min);
        ++paused;
        continue;
      }
      if (std::holds_alternative<NoSurvivor>(plan)) {
        ++lost;
        break;
      }
      ++formed;
      const Generation& next = std::get<Generation>(plan);
      REQUIRE(next.size() == std::min(total, change.max.value_or(total)));
      std::map<Incarnation, const Member*> before;
      for (const Member& member : change.previous.members) before[member.incarnation] = &member;
      if (!before.empty()) CHECK_FALSE(next.members.front().is_new);
      std::set<Incarnation> seen;
      std::map<std::string, int> sizes;
      for (int rank = 0; rank < next.size(); ++rank) {
        const Member& member = next.members[static_cast<size_t>(rank)];
        CHECK(member.slot == sizes[member.host]);
        CHECK(seen.insert(member.incarnation).second);
        CHECK_FALSE(change.ended.contains(member.incarnation));
        CHECK(member.is_new == !before.contains(member.incarnation));
        if (!member.is_new) CHECK(before[member.incarnation]->host == member.host);
        ++sizes[member.host];
      }
      for (const UsableHost& host : change.usable) {
        CHECK(sizes[host.host.name] <= host.host.slots);
      }
      for (const Member& member : next.removed) CHECK_FALSE(seen.contains(member.incarnation));
      change.previous = next;
      ++change.number;
      for (const Member& member : next.members) {
        next_incarnation = std::max(next_incarnation, member.incarnation + 1);
      }
    }
  }
  CHECK(formed > 500);
  CHECK(lost > 10);
  CHECK(paused > 10);
}

}  // namespace hvd::launcher
