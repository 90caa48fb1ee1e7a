#include "launcher/elastic/elastic_settings.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "launcher/cli/options.h"

namespace hvd::launcher {
namespace {

using Arguments = std::vector<std::string>;

LaunchSettings job_of(Arguments arguments) {
  arguments.emplace_back("train");
  const auto options = parse_options(arguments);
  REQUIRE_MESSAGE(options.ok(), options.status().message());
  CHECK(options->command == Arguments{"train"});
  return options->settings;
}

std::string job_refusal_of(Arguments arguments) {
  arguments.emplace_back("train");
  return parse_options(arguments).status().message();
}

}  // namespace

TEST_CASE("a discovery script or a minimum makes a job elastic") {
  CHECK_FALSE(is_elastic(job_of({"-np", "2"})));
  for (const char* flag : {"--min-np", "--min-num-proc"}) {
    const LaunchSettings settings = job_of({flag, "2"});
    CHECK(is_elastic(settings));
    CHECK(rank_limits(settings).start == 2);
    CHECK(rank_limits(settings).min == 2);
    CHECK_FALSE(rank_limits(settings).max);
  }
  const LaunchSettings settings =
      job_of({"-np", "2", "--host-discovery-script", "./hosts.sh a | sort"});
  CHECK(is_elastic(settings));
  CHECK(settings.elastic.host_discovery_script == "./hosts.sh a | sort");
  CHECK(rank_limits(settings).min == 2);
}

TEST_CASE("the limits of an elastic job lie around -np") {
  for (const char* max : {"--max-np", "--max-num-proc"}) {
    const RankLimits limits =
        rank_limits(job_of({"-np", "3", "--min-np", "2", max, "4", "-H", "a:4"}));
    CHECK(limits.start == 3);
    CHECK(limits.min == 2);
    CHECK(limits.max == 4);
  }
  CHECK(rank_limits(job_of({"-np", "2", "--min-np", "2", "--max-np", "2"})).max == 2);
  CHECK(job_refusal_of({"-np", "2", "--min-np", "4"}) ==
        "--min-np 4 is greater than -np 2, the number of ranks to start with; lower it, or raise "
        "-np");
  CHECK(job_refusal_of({"--num-proc", "4", "--min-np", "2", "--max-num-proc", "3"}) ==
        "--max-num-proc 3 is less than --num-proc 4, the number of ranks to start with; raise it, "
        "or lower "
        "--num-proc");
  CHECK(job_refusal_of({"--min-np", "4", "--max-np", "3"}) ==
        "--max-np 3 is less than --min-np 4, the number of ranks to start with; raise it, or lower "
        "--min-np");
  CHECK(job_refusal_of({"-np", "2", "--min-np", "0"}) ==
        "--min-np 0 is out of range; it lies between 1 and 16777216");
  CHECK(job_refusal_of({"--host-discovery-script", "x"}) ==
        "an elastic job needs the number of ranks to start with; add -np N to "
        "--host-discovery-script");
}

TEST_CASE("flags of elastic jobs are refused in others, by name") {
  for (const Arguments& flag :
       {Arguments{"--max-np", "4"}, Arguments{"--max-num-proc", "4"},
        Arguments{"--reset-limit", "3"}, Arguments{"--elastic-timeout", "60"},
        Arguments{"--blacklist-cooldown-range", "1", "2"}}) {
    Arguments all{"-np", "2"};
    all.insert(all.end(), flag.begin(), flag.end());
    CHECK(job_refusal_of(all) == flag.front() +
                                     " is for elastic jobs; add --host-discovery-script COMMAND or "
                                     "--min-np N, or leave it out");
  }
}

TEST_CASE("an elastic job has one source of hosts, and this launcher") {
  CHECK(job_refusal_of({"-np", "2", "--host-discovery-script", "x", "-H", "a:2"}) ==
        "--host-discovery-script and -H both name the hosts; use only one of them");
  CHECK(job_refusal_of({"-np", "2", "--host-discovery-script", "x", "--hostfile", "f"}) ==
        "--host-discovery-script and --hostfile both name the hosts; use only one of them");
  CHECK(job_refusal_of({"-np", "2", "--min-np", "1", "--mpi"}) ==
        "--mpi starts jobs of constant size only; omit it or --min-np");
  CHECK(job_refusal_of({"-np", "2", "--host-discovery-script", "x", "--jsrun"}) ==
        "--jsrun starts jobs of constant size only; omit it or --host-discovery-script");
  CHECK(job_refusal_of({"-np", "2", "--host-discovery-script", "x", "--gloo"}).empty());
}

TEST_CASE("the timeout of an elastic job is the flag's, the variable's or the default") {
  CHECK(elastic_timeout(job_of({"--min-np", "1"})) == 600);
  CHECK(elastic_timeout(job_of({"--min-np", "1", "--elastic-timeout", "0"})) == 600);
  ::setenv("HOROVOD_ELASTIC_TIMEOUT", "70", 1);
  CHECK(elastic_timeout(job_of({"--min-np", "1"})) == 70);
  CHECK(elastic_timeout(job_of({"--min-np", "1", "--elastic-timeout", "5"})) == 5);
  // A user may set the variable for all jobs; jobs of constant size ignore it.
  CHECK_FALSE(is_elastic(job_of({"-np", "1"})));
  ::unsetenv("HOROVOD_ELASTIC_TIMEOUT");
  CHECK(job_refusal_of({"--min-np", "1", "--elastic-timeout", "-1"}) ==
        "--elastic-timeout -1 is out of range; it lies between 0 and 100000000");
}

TEST_CASE("a limit of resets is a number, or a number in a time") {
  const auto limit_of = [](const char* text) {
    return *reset_limit(job_of({"--min-np", "1", "--reset-limit", text}));
  };
  CHECK_FALSE(reset_limit(job_of({"--min-np", "1"})));
  CHECK(limit_of("0").resets == 0);
  CHECK(limit_of("3").resets == 3);
  CHECK_FALSE(limit_of("3").seconds);
  CHECK(limit_of("3/60").resets == 3);
  CHECK(limit_of("3/60").seconds == 60);
  CHECK(limit_of("3 / 0.5").seconds == 0.5);
  for (const char* text :
       {"-1", "x", "3/", "/60", "3/0", "3/-1", "3/nan", "1/2/3", "1.5", "2000000"}) {
    CHECK(job_refusal_of({"--min-np", "1", "--reset-limit", text}) ==
          std::string("--reset-limit: '") + text +
              "' is not a limit; write N, from 0 to 1000000, or N/SECONDS, such as 3/60");
  }
}

TEST_CASE("a range of cooldown is two numbers of seconds") {
  const auto range_of = [](const Arguments& flag) {
    Arguments all{"--min-np", "1"};
    all.insert(all.end(), flag.begin(), flag.end());
    return *cooldown_range(job_of(all));
  };
  CHECK_FALSE(cooldown_range(job_of({"--min-np", "1"})));
  for (const Arguments& flag : {Arguments{"--blacklist-cooldown-range", "10", "100"},
                                Arguments{"--blacklist-cooldown-range", "10,100"},
                                Arguments{"--blacklist-cooldown-range=10,100"},
                                Arguments{"--blacklist-cooldown-range=10 100"}}) {
    CHECK(range_of(flag).low == 10);
    CHECK(range_of(flag).high == 100);
  }
  CHECK(range_of({"--blacklist-cooldown-range", "1", "3600"}).high == 3600);
  CHECK(range_of({"--blacklist-cooldown-range", "5", "5"}).low == 5);
  const auto refusal = [](const char* low, const char* high) {
    return job_refusal_of({"--min-np", "1", "--blacklist-cooldown-range", low, high});
  };
  CHECK(refusal("0", "10") ==
        "--blacklist-cooldown-range: '0 10' is out of range; LO must be at least 1 second, HI at "
        "most "
        "3600 seconds, and LO not more than HI");
  CHECK(refusal("1", "4000").find("'1 4000' is out of range") != std::string::npos);
  CHECK(refusal("20", "10").find("'20 10' is out of range") != std::string::npos);
  CHECK(refusal("nan", "nan").find("'nan nan' is out of range") != std::string::npos);
  CHECK(refusal("10", "x") ==
        "--blacklist-cooldown-range: '10 x' is not a range; write two numbers of seconds, such as "
        "10 100");
  CHECK(job_refusal_of({"--min-np", "1", "--blacklist-cooldown-range=10"}) ==
        "--blacklist-cooldown-range: '10 train' is not a range; write two numbers of seconds, such "
        "as 10 100");
  CHECK(job_refusal_of({"--blacklist-cooldown-range", "10", "--min-np", "1"}) ==
        "--blacklist-cooldown-range needs LO HI");
  CHECK(parse_options(Arguments{"--blacklist-cooldown-range"}).status().message() ==
        "--blacklist-cooldown-range needs LO HI");
}

TEST_CASE("flags that an elastic job would ignore are refused") {
  CHECK(job_refusal_of({"--min-np", "1", "--spares", "2"}) ==
        "--spares is for jobs of constant size: an elastic job continues with the remaining "
        "hosts, and takes new ones; leave it out");
  CHECK(job_refusal_of({"--min-np", "1", "--max-restarts", "1"}).empty());
  CHECK(job_refusal_of(
            {"--min-np", "1", "--max-restarts", "1", "--listen", ":0", "--token-file", "f"}) ==
        "--max-restarts cannot be combined with --token-file: an agent that joins starts its ranks "
        "only once; "
        "leave it out");
  CHECK(job_refusal_of({"--min-np", "1", "--on-failure", "wait"}) ==
        "--on-failure wait is for jobs of constant size: the ranks of an elastic job continue "
        "without "
        "the failed one; leave it out");
  CHECK(job_refusal_of({"--min-np", "1", "--insecure-compat"}) ==
        "--insecure-compat is for jobs of constant size: the launcher of an elastic job does not "
        "serve Horovod's own workers; leave out --insecure-compat or --min-np");
  CHECK(job_refusal_of({"-np", "1", "--host-discovery-script", "x", "--insecure-compat"}) ==
        "--insecure-compat is for jobs of constant size: the launcher of an elastic job does not "
        "serve Horovod's own workers; leave out --insecure-compat or --host-discovery-script");
  CHECK(job_refusal_of({"--min-np", "1", "--store-fd", "3"}).empty());
  CHECK(job_refusal_of({"--min-np", "1", "--max-restarts", "0", "--on-failure", "kill"}).empty());
}

TEST_CASE("a config file holds the settings of an elastic job") {
  const std::string path = "elastic_settings_test.yaml";
  std::ofstream(path)
      << "num_proc: 2\nmin_num_proc: 1\nmax_num_proc: 4\nslots_per_host: 2\n"
         "host_discovery_script: ./hosts.sh\nelastic_timeout: 60\nreset_limit: 3/60\n"
         "blacklist_cooldown_range: [10, 100]\n";
  const LaunchSettings settings = job_of({"--config-file", path});
  std::remove(path.c_str());
  CHECK(is_elastic(settings));
  CHECK(rank_limits(settings).max == 4);
  CHECK(settings.elastic.host_discovery_script == "./hosts.sh");
  CHECK(elastic_timeout(settings) == 60);
  CHECK(reset_limit(settings)->seconds == 60);
  CHECK(cooldown_range(settings)->high == 100);
}

}  // namespace hvd::launcher
