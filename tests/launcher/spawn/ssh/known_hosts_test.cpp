#include "launcher/spawn/ssh/known_hosts.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "base/text.h"
#include "tests/conformance/spawner_conformance.h"

namespace hvd::launcher {
namespace {

constexpr char kKey[] =
    " ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPof+PDVWEKaZU7VFY5WuRiaPqciqgpMiXoOLbC+wzpJ\n";

TEST_CASE("a host's keys are found in every file, and the port is part of its name") {
  if (!libssh().ok()) {
    MESSAGE("SKIP: " << libssh().status().message());
    return;
  }
  ScratchFolder scratch;
  const std::string one = scratch.write("one", cat("# x\n\nn7,10.0.0.7", kKey, "n8", kKey));
  const std::string two =
      scratch.write("two", cat("[n7]:2202", kKey, "*.cluster,!login.cluster", kKey));
  const auto count = [&](const std::string& name) {
    return find_known_hosts(name, {one, "/nowhere", two}).keys.size();
  };
  CHECK(count("n7") == 1);
  CHECK(count(known_hosts_name("N7", 2202)) == 1);
  CHECK(count(known_hosts_name("n7", 2203)) == 0);
  CHECK(count("10.0.0.7") == 1);
  CHECK(count("x.cluster") == 1);
  CHECK(count("login.cluster") == 0);
  const KnownHostKeys found = find_known_hosts("n8", {two, one});
  REQUIRE(found.keys.size() == 1);
  CHECK(found.keys[0].place == one + ":4");
}

TEST_CASE("marked lines are found for the hosts that they may mean, and are nobody's key") {
  if (!libssh().ok()) return;
  ScratchFolder scratch;
  // "marked": only the system's ssh supports the line; "revoked": libssh supports it too.
  const auto outcome = [&](const std::string& line, const std::string& name) -> std::string {
    const std::string file = scratch.write("known_hosts", line);
    const KnownHostKeys found = find_known_hosts(name, {file});
    CHECK(found.keys.empty());
    if (!found.revoked.empty()) CHECK(found.revoked[0].place == file + ":1");
    if (!found.marked_in.empty()) CHECK(found.marked_in == file + ":1");
    CHECK(found.authority_in == (line.starts_with("@cert") ? found.marked_in : ""));
    if (!found.marked_in.empty()) return "marked";
    return found.revoked.empty() ? "" : "revoked";
  };
  CHECK(outcome(cat("@cert-authority *.cluster", kKey), "n7.cluster") == "marked");
  CHECK(outcome(cat("@cert-authority *.cluster", kKey), "n7").empty());
  CHECK(outcome(cat(" @revoked\t[n7]:2222,n8", kKey), "[n7]:2222") == "revoked");
  CHECK(outcome(cat("@revoked [n7]:2222,n8", kKey), "n7").empty());
  CHECK(outcome(cat("@revoked !n7,*", kKey), "n7").empty());
  CHECK(outcome(cat("@revoked !n7,*", kKey), "n8") == "revoked");
  CHECK(outcome("@revoked n7 sk-of-tomorrow AAAA\n", "n7") == "marked");
  CHECK(outcome("@revoked\n", "n7").empty());
  // The name n7, hashed by ssh-keygen -H.
  CHECK(outcome(cat("@revoked |1|YHB+jsKMqwdiJuO11PlDX4L7s5o=|z63u4oXaaUVbfSrtWFdxdn6c1Q8=", kKey),
                "n7") == "revoked");
}

TEST_CASE("a line is found whatever separates its words and whatever the case of its names") {
  if (!libssh().ok()) return;
  ScratchFolder scratch;
  std::string tabs = cat("n7", kKey);
  std::replace(tabs.begin(), tabs.end(), ' ', '\t');
  const std::string file =
      scratch.write("known_hosts", cat(tabs, "Cluster", kKey, "@revoked\t", tabs));
  const KnownHostKeys found = find_known_hosts("n7", {file});
  CHECK(found.keys.size() == 1);
  CHECK(found.revoked.size() == 1);
  for (const char* name : {"cluster", "Cluster", "CLUSTER"}) {
    CHECK(find_known_hosts(name, {file}).keys.size() == 1);
  }
}

}  // namespace
}  // namespace hvd::launcher
