#include "launcher/job/supervisor.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <csignal>

#include "launcher/output/report.h"
#include "tests/launcher/hosts/running_hosts.h"

namespace hvd::launcher {
namespace {

using Action = Supervisor::Action;

}  // namespace

TEST_CASE("a job whose ranks all end well has exit code 0 and no report") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  for (int rank = 0; rank < 4; ++rank) CHECK(supervisor.on_exit({.rank = rank}) == Action::kNone);
  CHECK(supervisor.on_finished(0) == Action::kNone);
  CHECK_FALSE(hosts.is_over());
  CHECK(supervisor.on_finished(1) == Action::kNone);
  CHECK(hosts.is_over());
  CHECK(supervisor.exit_code() == 0);
  CHECK(supervisor.report().empty());
}

TEST_CASE("the first rank that fails ends the job and names its host and cause") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_exit({.rank = 3, .code = 3}) == Action::kEnd);
  CHECK(supervisor.on_exit({.rank = 1, .code = 1}) == Action::kNone);
  CHECK(supervisor.on_exit({.rank = 0, .signal = SIGTERM, .by_agent = true}) == Action::kNone);
  CHECK(supervisor.exit_code() == 3);
  CHECK(supervisor.report() == "rank 3 on host b exited with code 3");
}

TEST_CASE("a rank in a world of its own ends the job, unless it has been in the job's before") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_joined(1, 1, 4) == Action::kNone);
  CHECK(supervisor.on_joined(1, 0, 1) ==
        Action::kNone);  // rank 1 has started another process, which joined a world of 1
  CHECK(supervisor.on_joined(7, 0, 1) == Action::kNone);
  SUBCASE("alone") {
    CHECK(supervisor.on_joined(2, 0, 1) == Action::kEnd);
    CHECK(supervisor.report().starts_with("rank 2 on host b is rank 0 in a world of 1 of its own"));
  }
  SUBCASE("a job of the same size, as another rank") {
    CHECK(supervisor.on_joined(2, 0, 4) == Action::kEnd);
  }
  CHECK(supervisor.exit_code() == kExitLauncher);
  CHECK(supervisor.failed_rank() == 2);
}

TEST_CASE("a failure that the others outlive is reported at once, the last not twice") {
  RunningHosts hosts;
  Supervisor supervisor(hosts, true);
  CHECK(supervisor.on_exit({.rank = 3, .code = 3}) == Action::kNone);
  CHECK(supervisor.take_news() ==
        "rank 3 on host b exited with code 3; --on-failure wait lets the other 3 ranks continue");
  CHECK_FALSE(supervisor.take_news());
  supervisor.on_exit({.rank = 0});
  supervisor.on_exit({.rank = 1});
  CHECK_FALSE(supervisor.take_news());
  supervisor.on_exit({.rank = 2, .code = 4});
  CHECK_FALSE(supervisor.take_news());
  CHECK(supervisor.exit_code() == 3);
}

TEST_CASE("a job of one rank may start any world") {
  const SlotPlan alone = *plan_slots({{"a", "", 1}}, {});
  RunningHosts hosts(alone);
  CHECK(Supervisor(hosts).on_joined(0, 2, 4) == Action::kNone);
}

TEST_CASE("a rank that failed because another left waits for that one's end, which is the cause") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_exit({.rank = 1, .code = 1}, 3) == Action::kAwait);
  CHECK(supervisor.on_exit({.rank = 0, .code = 1}, 3) == Action::kNone);
  CHECK(supervisor.on_exit({.rank = 3, .code = 7}) == Action::kEnd);
  CHECK(supervisor.on_awaited() == Action::kNone);
  CHECK(supervisor.exit_code() == 7);
  CHECK(supervisor.report() == "rank 3 on host b exited with code 7");
}

TEST_CASE("an awaited rank may have left because of another rank, which is awaited then") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_exit({.rank = 1, .code = 1}, 2) == Action::kAwait);
  CHECK(supervisor.on_exit({.rank = 2, .code = 1}, 3) == Action::kAwait);
  SUBCASE("and is the cause") {
    CHECK(supervisor.on_exit({.rank = 3, .code = 7}) == Action::kEnd);
    CHECK(supervisor.report() == "rank 3 on host b exited with code 7");
  }
  SUBCASE("and names the first again") {
    CHECK(supervisor.on_exit({.rank = 3, .code = 7}, 1) == Action::kEnd);
    CHECK(supervisor.report() ==
          "rank 3 on host b exited with code 7, after rank 1 had left the job");
  }
}

TEST_CASE("a rank that failed because another left is the cause when that one ends well") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  SUBCASE("before it") {
    CHECK(supervisor.on_exit({.rank = 3}) == Action::kNone);
    CHECK(supervisor.on_exit({.rank = 1, .code = 4}, 3) == Action::kEnd);
  }
  SUBCASE("after it") {
    CHECK(supervisor.on_exit({.rank = 1, .code = 4}, 3) == Action::kAwait);
    CHECK(supervisor.on_exit({.rank = 3}) == Action::kEnd);
  }
  SUBCASE("not in time") {
    CHECK(supervisor.on_exit({.rank = 1, .code = 4}, 3) == Action::kAwait);
    CHECK(supervisor.on_awaited() == Action::kEnd);
  }
  CHECK(supervisor.exit_code() == 4);
  CHECK(supervisor.report() ==
        "rank 1 on host a exited with code 4, after rank 3 had left the job");
}

TEST_CASE("a connection that broke between ranks that live is the cause") {
  const std::string link = "the connection between rank 1 on host a and rank 3 on host b was reset";
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_exit({.rank = 1, .code = 1}, Supervisor::LeftBy(3, link)) == Action::kAwait);
  SUBCASE("both fail because of it") {
    CHECK(supervisor.on_exit({.rank = 3, .code = 1}, Supervisor::LeftBy(1, link)) == Action::kEnd);
    CHECK(supervisor.report() == link + "; rank 3 on host b exited with code 1 because of it");
  }
  SUBCASE("the other one goes on") {
    CHECK(supervisor.on_awaited() == Action::kEnd);
    CHECK(supervisor.report() == link + "; rank 1 on host a exited with code 1 because of it");
  }
  SUBCASE("the other one ends well") {
    CHECK(supervisor.on_exit({.rank = 3}) == Action::kEnd);
    CHECK(supervisor.report() ==
          "rank 1 on host a exited with code 1, after rank 3 had left the job");
  }
  SUBCASE("the other one had been killed") {
    CHECK(supervisor.on_exit({.rank = 3, .signal = SIGKILL}) == Action::kEnd);
    CHECK(supervisor.report() == "rank 3 on host b was killed by signal 9 (SIGKILL)");
  }
}

TEST_CASE("a third rank that fails first because of a broken connection is not its end") {
  const std::string link = "the connection between rank 1 on host a and rank 3 on host b was reset";
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_exit({.rank = 0, .code = 1}, Supervisor::LeftBy(3, link)) == Action::kAwait);
  CHECK(supervisor.on_exit({.rank = 1, .code = 1}, Supervisor::LeftBy(3, link)) == Action::kNone);
  CHECK(supervisor.on_exit({.rank = 3, .code = 1}, Supervisor::LeftBy(1, link)) == Action::kEnd);
  CHECK(supervisor.report() == link + "; rank 3 on host b exited with code 1 because of it");
}

TEST_CASE(
    "a rank that reports its own broken connection by way of another rank names the connection") {
  const std::string link = "the connection between rank 1 on host a and rank 3 on host b was reset";
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_exit({.rank = 3, .code = 1}, Supervisor::LeftBy(3, link)) == Action::kEnd);
  CHECK(supervisor.report() == link + "; rank 3 on host b exited with code 1 because of it");
}

TEST_CASE("while a rank's end is awaited, other causes end the job at once") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_exit({.rank = 1, .code = 1}, 3) == Action::kAwait);
  SUBCASE("another rank") {
    CHECK(supervisor.on_exit({.rank = 2, .signal = SIGKILL}) == Action::kEnd);
    CHECK(supervisor.exit_code() == 137);
  }
  SUBCASE("the user") {
    CHECK(supervisor.on_signal(SIGINT) == Action::kEnd);
    CHECK(supervisor.exit_code() == 130);
  }
}

TEST_CASE("a rank that a signal killed gives 128 and the signal") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_exit({.rank = 1, .signal = SIGKILL}) == Action::kEnd);
  CHECK(supervisor.exit_code() == 137);
  CHECK(supervisor.report() == "rank 1 on host a was killed by signal 9 (SIGKILL)");
}

TEST_CASE("a lost host ends the job, also when its ranks never spoke") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_lost(1, unavailable("the link was cut")) == Action::kEnd);
  CHECK(supervisor.on_finished(0) == Action::kNone);
  CHECK(hosts.is_over());
  CHECK(supervisor.exit_code() == kExitLauncher);
  CHECK(supervisor.report() == "host b was lost: the link was cut");
}

TEST_CASE("hosts that are lost together are all named") {
  const SlotPlan plan = *plan_slots({{"a", "", 1}, {"b", "", 1}, {"c", "", 1}}, {});
  const Status silence = deadline_exceeded("the host did not answer for 45 s");
  RunningHosts hosts(plan);
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_lost(2, silence) == Action::kEnd);
  CHECK(supervisor.report() == "host c was lost: the host did not answer for 45 s");
  SUBCASE("for the same reason") {
    CHECK(supervisor.on_lost(1, silence) == Action::kNone);
    CHECK(supervisor.report() == "hosts b and c were lost: they did not answer for 45 s");
  }
  SUBCASE("but not one that is lost for another reason while the job ends") {
    CHECK(supervisor.on_lost(1, unavailable("it does not answer")) == Action::kNone);
    CHECK(supervisor.report() == "host c was lost: the host did not answer for 45 s");
  }
  CHECK(supervisor.exit_code() == kExitLauncher);
}

TEST_CASE("a host that is lost while the job ends for another reason is not the cause") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_exit({.rank = 0, .code = 3}) == Action::kEnd);
  CHECK(supervisor.on_lost(1, unavailable("the link was cut")) == Action::kNone);
  CHECK(supervisor.report() == "rank 0 on host a exited with code 3");
}

TEST_CASE("a rank that fails while another host is silent waits for that host's answer or loss") {
  std::vector<bool> silent = {false, true};
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  supervisor.ask_about_silence([&](int host) { return silent[static_cast<size_t>(host)]; });
  CHECK(supervisor.on_exit({.rank = 1, .code = 1}, 3) == Action::kNone);
  silent = {true, false};  // the supervisor asked at the first exit only
  CHECK(supervisor.on_exit({.rank = 0, .code = 7}) == Action::kNone);
  CHECK(supervisor.on_answer(0) == Action::kNone);
  SUBCASE("the host is lost") {
    CHECK(supervisor.on_lost(1, unavailable("no answer for 45 s")) == Action::kEnd);
    CHECK(supervisor.exit_code() == kExitLauncher);
    CHECK(supervisor.failed_rank() == -1);
    CHECK(supervisor.report() ==
          "host b was lost: no answer for 45 s; before that, rank 1 on host a exited with "
          "code 1");
  }
  SUBCASE("the host answers") {
    CHECK(supervisor.on_answer(1) == Action::kEnd);
    CHECK(supervisor.exit_code() == 7);
    CHECK(supervisor.report() == "rank 0 on host a exited with code 7");
  }
  SUBCASE("the user does not wait") {
    CHECK(supervisor.on_signal(SIGINT) == Action::kEnd);
    CHECK(supervisor.on_answer(1) == Action::kNone);
    CHECK(supervisor.report() == "ended by SIGINT");
  }
}

TEST_CASE("a rank that fails while all other hosts answer ends the job at once") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  supervisor.ask_about_silence([](int host) { return host == 0; });
  CHECK(supervisor.on_exit({.rank = 1, .code = 4}) == Action::kEnd);  // rank 1's host is silent
  CHECK(supervisor.exit_code() == 4);
}

TEST_CASE("a host that cannot be started is named once") {
  RunningHosts hosts;
  Supervisor agent(hosts);
  CHECK(agent.on_preparation_failed(1, unavailable("host b: connect: refused")) == Action::kEnd);
  CHECK(agent.report() == "host b: connect: refused");
  RunningHosts hosts_of_ranks;
  Supervisor ranks(hosts_of_ranks);
  CHECK(ranks.on_start_failed(1, not_found("no such program")) == Action::kEnd);
  CHECK(ranks.report() == "host b: start: no such program");
}

TEST_CASE("a failure names ranks that had exited with 0, and what the rank waited for") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_exit({.rank = 2}) == Action::kNone);
  CHECK(supervisor.on_exit({.rank = 0, .code = 1}, {}, " while it waited") == Action::kEnd);
  CHECK(supervisor.report() ==
        "rank 0 on host a exited with code 1 while it waited; rank 2 on host b had exited with "
        "code 0");
  RunningHosts hosts_of_several;
  Supervisor several(hosts_of_several);
  several.on_exit({.rank = 1});
  several.on_exit({.rank = 2});
  several.on_exit({.rank = 3, .signal = SIGSEGV});
  CHECK(several.report() ==
        "rank 3 on host b was killed by signal 11 (SIGSEGV); ranks 1-2 had exited with code 0");
}

TEST_CASE(
    "a rank that has ended, and that others wait for, ends the job also with --on-failure wait") {
  for (const bool waits : {false, true}) {
    RunningHosts hosts;
    Supervisor supervisor(hosts, waits);
    CHECK(supervisor.on_exit({.rank = 1}) == Action::kNone);
    CHECK(supervisor.on_awaited_rank_ended(1, {0, 2, 3}, "hvd.init()") == Action::kEnd);
    CHECK(supervisor.exit_code() == kExitLauncher);
    CHECK(supervisor.failed_rank() == 1);
    CHECK(supervisor.report() ==
          "rank 1 on host a exited with code 0, and ranks 0,2-3 wait for it in hvd.init()");
  }
  RunningHosts hosts_of_failed;
  Supervisor failed(hosts_of_failed, true);
  CHECK(failed.on_exit({.rank = 1, .code = 3}) == Action::kNone);
  CHECK(failed.on_awaited_rank_ended(1, {0}, "MPI_Init") == Action::kEnd);
  CHECK(failed.exit_code() == 3);
}

TEST_CASE("a signal ends the job, a second one at once") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_signal(SIGINT) == Action::kEnd);
  CHECK(supervisor.on_signal(SIGINT) == Action::kKill);
  CHECK(supervisor.exit_code() == 130);
  CHECK(supervisor.report() == "ended by SIGINT");
}

TEST_CASE("a SIGTERM that agents or ranks get before the launcher does is the cause") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  SUBCASE("an agent") {
    CHECK(supervisor.on_agent_ending(1, "the agent was ended by signal 15") == Action::kEnd);
    CHECK(supervisor.report() == "host b was lost: the agent was ended by signal 15");
    CHECK(supervisor.exit_code() == kExitLauncher);
  }
  SUBCASE("a rank") { CHECK(supervisor.on_exit({.rank = 1, .signal = SIGTERM}) == Action::kEnd); }
  CHECK(supervisor.on_signal(SIGTERM) == Action::kNone);
  CHECK(supervisor.report() == "ended by SIGTERM");
  CHECK(supervisor.exit_code() == 143);
  CHECK(supervisor.failed_rank() == -1);
}

TEST_CASE("ranks that had to be killed are named, but not where a second signal asked for it") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_signal(SIGINT) == Action::kEnd);
  CHECK(supervisor.killed_ranks().empty());
  supervisor.on_exit({.rank = 2, .signal = SIGKILL, .by_agent = true, .after_grace = true});
  CHECK(supervisor.killed_ranks() == "rank 2 on host b");
  supervisor.on_exit({.rank = 3, .signal = SIGKILL, .by_agent = true, .after_grace = true});
  CHECK(supervisor.killed_ranks() == "ranks 2-3 on host b");
  supervisor.on_exit({.rank = 0, .signal = SIGKILL, .by_agent = true, .after_grace = true});
  CHECK(supervisor.killed_ranks() == "ranks 0,2-3 on 2 hosts");
  supervisor.on_signal(SIGINT);
  CHECK(supervisor.killed_ranks().empty());
}

TEST_CASE("a signal after a failure ends faster and keeps the first cause") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_exit({.rank = 0, .code = 5}) == Action::kEnd);
  CHECK(supervisor.on_signal(SIGTERM) == Action::kNone);
  CHECK(supervisor.on_signal(SIGTERM) == Action::kKill);
  CHECK(supervisor.exit_code() == 5);
}

TEST_CASE("an output that nobody reads ends the job quietly") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_output_broken(EPIPE, "pipe:[1]") == Action::kEnd);
  CHECK(supervisor.exit_code() == 128 + SIGPIPE);
  CHECK(supervisor.report().empty());
}

TEST_CASE("an output on a full disk ends the job with the file and a remedy") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.on_output_broken(ENOSPC, "/full/out") == Action::kEnd);
  CHECK(supervisor.exit_code() == kExitLauncher);
  CHECK(supervisor.report() ==
        "cannot write the ranks' output to standard output, /full/out: No space left on device; "
        "redirect it to a disk with free space");
}

TEST_CASE("a host that finishes without an exit of each rank is no success") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  supervisor.on_exit({.rank = 0});
  CHECK(supervisor.on_finished(0) == Action::kEnd);
  CHECK(supervisor.exit_code() == kExitLauncher);
}

TEST_CASE("where failures wait, the first one counts when all have ended") {
  RunningHosts hosts;
  Supervisor supervisor(hosts, true);
  CHECK(supervisor.on_exit({.rank = 2, .code = 5}) == Action::kNone);
  CHECK(supervisor.on_exit({.rank = 0, .signal = SIGSEGV}) == Action::kNone);
  CHECK_FALSE(supervisor.is_ending());
  CHECK(supervisor.failed_rank() == 2);
  CHECK(supervisor.on_exit({.rank = 1}) == Action::kNone);
  CHECK(supervisor.on_exit({.rank = 3}) == Action::kNone);
  CHECK(supervisor.exit_code() == 5);
  CHECK(supervisor.report() == "rank 2 on host b exited with code 5");
  SUBCASE("but a host that is lost ends the job at once") {
    CHECK(supervisor.on_lost(1, unavailable("gone")) == Action::kEnd);
    CHECK(supervisor.exit_code() == 5);
  }
  SUBCASE("and the user may end it") {
    CHECK(supervisor.on_signal(SIGINT) == Action::kEnd);
    CHECK(supervisor.on_signal(SIGINT) == Action::kKill);
  }
}

TEST_CASE("a job that takes too long is ended with a code of its own") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  CHECK(supervisor.end_job(124, "the job was ended after 2.5 s (--timeout)", -1) == Action::kEnd);
  CHECK(supervisor.on_exit({.rank = 0, .signal = SIGTERM, .by_agent = true}) == Action::kNone);
  CHECK(supervisor.exit_code() == 124);
  CHECK(supervisor.failed_rank() == -1);
  CHECK(supervisor.report() == "the job was ended after 2.5 s (--timeout)");
}

TEST_CASE("a limit of processor time is named") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  supervisor.on_exit({.rank = 3, .signal = SIGXCPU, .cpu_seconds = 60});
  CHECK(supervisor.report() ==
        "rank 3 on host b was killed by signal 24 (SIGXCPU); it has used up the 60 s of processor "
        "time that ulimit -t allows on that host");
}

TEST_CASE("the kernel's out-of-memory killer is named, also when it struck a rank's child") {
  RunningHosts hosts;
  Supervisor supervisor(hosts);
  SUBCASE("a rank") {
    supervisor.on_exit({.rank = 3, .signal = SIGKILL, .out_of_memory = true});
    CHECK(supervisor.report().starts_with(
        "rank 3 on host b was killed by the kernel's out-of-memory killer"));
    CHECK(supervisor.exit_code() == 137);
  }
  SUBCASE("another process") {
    supervisor.on_exit({.rank = 3, .code = 1, .out_of_memory = true});
    CHECK(supervisor.report() ==
          "rank 3 on host b exited with code 1; the kernel's out-of-memory "
          "killer has ended a process on that host");
  }
}

}  // namespace hvd::launcher
