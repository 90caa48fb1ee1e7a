#include "launcher/plan/host_remarks.h"

#include <doctest/doctest.h>

namespace hvd::launcher {
namespace {

Versions has(const char* python, const char* horovod = "") {
  Versions versions = {{"Python", python}};
  if (*horovod != '\0') versions.emplace_back("horovod", horovod);
  return versions;
}

const std::vector<std::string> kHosts = {"a", "b", "c"};

}  // namespace

TEST_CASE("hosts that are alike, or were not asked, are not named") {
  CHECK(describe_differences(kHosts, {has("3.11.2", "1.0"), has("3.11.9", "1.0"), {}}).empty());
  CHECK(describe_differences({"a", "b"}, {has("3.11.2", "1.0.0"), has("3.11.2", "1.0.1")}).empty());
  CHECK(describe_differences(kHosts, {{}, {}, {}}).empty());
  CHECK(describe_differences({"a"}, {has("3.11.2")}).empty());
}

TEST_CASE("the host that differs from most is named, wherever it stands") {
  const auto said = describe_differences(kHosts, {has("3.9.1"), has("3.11.2"), has("3.11.2")});
  REQUIRE(said.size() == 1);
  CHECK(said[0].starts_with(
      "host a has Python 3.9.1 for this program, and host b has Python 3.11.2;"));
}

TEST_CASE("the first of two different versions is the measure; a host may lack horovod") {
  auto said = describe_differences({"a", "b"}, {has("3.11.2", "1.0"), has("3.11.2", "1.1")});
  REQUIRE(said.size() == 1);
  CHECK(
      said[0].starts_with("host b has horovod 1.1 for this program, and host a has horovod 1.0;"));
  said = describe_differences({"a", "b"}, {has("3.11.2", "1.0"), has("3.10.2")});
  REQUIRE(said.size() == 2);
  CHECK(said[0].starts_with("host b has Python 3.10.2 "));
  CHECK(said[1].starts_with("host b has no horovod for this program, and host a has horovod 1.0;"));
}

TEST_CASE("one sentence says which hosts use a copy of the launcher's package") {
  PackageUse use{.copies = {{"a", "b"}, {"a", "b"}}, .version = "1.2.3", .folder = "/opt/site"};
  use.bytes_sent = 8'040'000;
  CHECK(describe_package_use(use) ==
        "hosts a, b have no horovod for this program: their ranks use this horovodrun's horovod "
        "1.2.3 (/opt/site here), sent there now (8 MB); --no-ship refuses such hosts");
  use.copies.receivers = {"b"};
  CHECK(describe_package_use(use).find("here), sent to b now (8 MB); ") != std::string::npos);
  use.copies.receivers.clear();
  use.copies.hosts = {"a"};
  CHECK(describe_package_use(use) ==
        "host a has no horovod for this program: its ranks use this horovodrun's horovod 1.2.3 "
        "(/opt/site here), which an earlier job has sent there; --no-ship refuses such hosts");
  use.copies.hosts = {"a", "b", "c", "d", "e", "f"};
  use.is_everywhere = true;
  CHECK(describe_package_use(use) ==
        "the ranks on hosts a, b, c, d and 2 others use this horovodrun's horovod 1.2.3 (/opt/site "
        "here), which an earlier job has sent there");
}

TEST_CASE("one sentence says which hosts use an environment") {
  EnvironmentUse use{
      .file = "uv.lock", .packages = 2, .bytes = 8'040'000, .copies = {{"a", "b"}, {"a", "b"}}};
  CHECK(
      describe_environment_use(use) ==
      "the ranks on hosts a, b use the environment of uv.lock (2 packages), sent there now (8 MB)");
  use = {.file = "uv.lock", .packages = 1, .copies = {{"a"}, {}}};
  CHECK(describe_environment_use(use) ==
        "the ranks on host a use the environment of uv.lock (1 package), which an earlier job has "
        "sent there");
  use.packages = 0;
  CHECK(describe_environment_use(use) ==
        "the ranks on host a use the environment of uv.lock, which an earlier job has sent there");
}

TEST_CASE("hosts on machines of their own, or unknown ones, are not named") {
  CHECK(describe_same_machines({"a", "b"}, {"boot/1/2", "boot/3/4"}).empty());
  CHECK(describe_same_machines({"a", "b"}, {"", ""}).empty());
}

TEST_CASE("one machine under several names is one sentence") {
  const auto sentences = describe_same_machines({"a", "b", "10.0.0.1"}, {"m", "n", "m"});
  REQUIRE(sentences.size() == 1);
  CHECK(sentences[0].starts_with("hosts a and 10.0.0.1 are one machine: "));
}

TEST_CASE("hosts with the same number of threads are named once, by none of their names") {
  const std::string said = describe_thread_shares({"a", "b"}, {2, 2});
  CHECK(said.starts_with("each rank gets OMP_NUM_THREADS=2, "));
  CHECK(said.find("--no-omp-default") != std::string::npos);
}

TEST_CASE("hosts that differ are named in the one sentence, some of many") {
  CHECK(describe_thread_shares({"a", "b", "c"}, {2, 1, 2})
            .starts_with("ranks get OMP_NUM_THREADS=1 on b; 2 on a, c, "));
  CHECK(
      describe_thread_shares({"a", "b"}, {0, 1}).starts_with("ranks get OMP_NUM_THREADS=1 on b, "));
  CHECK(describe_thread_shares({"a", "b", "c", "d", "e", "f"}, {1, 1, 1, 1, 1, 0})
            .starts_with("ranks get OMP_NUM_THREADS=1 on a, b, c and 2 more, "));
}

TEST_CASE("hosts whose processes are bound to fewer cores than ranks are named") {
  CHECK(describe_binding({}).empty());
  CHECK(describe_bindings({{"a", {0}, {""}}}).empty());
  CHECK(describe_bindings({{"a", {0}, {"cpus 0"}}, {"b", {1, 2}, {"cpus 0", "cpus 1"}}}) ==
        std::vector<std::string>{"rank 0 on a: cpus 0", "rank 1 on b: cpus 0",
                                 "rank 2 on b: cpus 1"});
  CHECK(describe_bindings({{"a", {0}, {"cpus 0"}}, {"b", {1}, {"cpus 0"}}}) ==
        std::vector<std::string>{"local rank 0 on each of 2 hosts: cpus 0"});
  const std::string said = describe_binding({{"a", "1 of 8"}, {"b", "2 of 4"}});
  CHECK_MESSAGE(said.starts_with("ranks share 1 of 8 cores on a, 2 of 4 cores on b: "), said);
}

TEST_CASE("nothing is said where nothing is set") {
  CHECK(describe_thread_shares({"a", "b"}, {0, 0}).empty());
}

}  // namespace hvd::launcher
