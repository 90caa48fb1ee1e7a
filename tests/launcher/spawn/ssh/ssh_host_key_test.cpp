// Host keys that the ssh spawner accepts, with libssh and with the system's ssh.
#include <doctest/doctest.h>

#include <algorithm>

#include "base/text.h"
#include "tests/launcher/spawn/ssh/ssh_outcome.h"

namespace hvd::launcher {
namespace {

TEST_CASE("an unknown host key is added, and known the next time") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  sshd.scratch().write("known_hosts", "other ssh-ed25519 AAAA");  // without a newline
  CHECK(outcome(sshd.user(), sshd.target("echo up")) == "up\n");
  const std::string expected = "other ssh-ed25519 AAAA\n" + sshd.known_hosts_line();
  CHECK(content_of(sshd.path("known_hosts")) == expected);
  CHECK(outcome(sshd.user({"StrictHostKeyChecking yes"}), sshd.target("echo up")) == "up\n");
  CHECK(content_of(sshd.path("known_hosts")) == expected);
}

TEST_CASE("names are hashed where the configuration asks for that") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  const auto check = [&](bool by_system_ssh, const std::string& alias) {
    const std::string known = sshd.scratch().write("known_hosts", "");
    CHECK(outcome(user_of(sshd, by_system_ssh, {"HashKnownHosts yes", alias}),
                  sshd.target("echo up")) == "up\n");
    CHECK(content_of(known).starts_with("|1|"));
    for (const bool reads_by_system_ssh : {false, true}) {
      CHECK(outcome(user_of(sshd, reads_by_system_ssh, {"StrictHostKeyChecking yes", alias}),
                    sshd.target("echo up")) == "up\n");
    }
  };
  check(false, "");
  check(true, "");
  // OpenSSH itself does not find a key that it added for an alias with capital letters.
  check(false, "HostKeyAlias Cluster");
}

TEST_CASE("an unknown host key is refused when the configuration says so") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  for (const bool by_system_ssh : {false, true}) {
    for (const std::string policy : {"yes", "ask"}) {
      const std::string text =
          outcome(user_of(sshd, by_system_ssh, {"StrictHostKeyChecking " + policy}),
                  sshd.target("echo up"));
      CAPTURE(text);
      CHECK(contains(text, "its host key is unknown"));
      CHECK(by_system_ssh != text.starts_with("its host key is unknown (ssh-ed25519 SHA256:"));
      CHECK(contains(text, "StrictHostKeyChecking is " + policy));
      CHECK(content_of(sshd.path("known_hosts")).empty());
    }
  }
}

TEST_CASE("a changed host key is refused whatever the configuration says") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  REQUIRE(run_program({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", sshd.path("old")}) ==
          0);
  const std::string host = cat("[127.0.0.1]:", sshd.port());
  const std::string known = sshd.scratch().write(
      "known_hosts", "# a comment\n" + host + " " + content_of(sshd.path("old.pub")));
  const std::string before = content_of(known);
  for (const bool by_system_ssh : {false, true}) {
    for (const std::string policy : {"yes", "no", "accept-new", ""}) {
      const std::string line = policy.empty() ? "" : "StrictHostKeyChecking " + policy;
      const std::string text =
          outcome(user_of(sshd, by_system_ssh, {line}), sshd.target("echo up"));
      CAPTURE(policy);
      CAPTURE(text);
      CHECK(content_of(known) == before);
      CHECK(contains(text, "has changed"));
      if (by_system_ssh) continue;
      CHECK(text.starts_with("its host key has changed: it shows ssh-ed25519 SHA256:"));
      CHECK(contains(text, known + ":2 has another"));
      CHECK(contains(text, "ssh-keygen -f " + known + " -R '" + host + "'"));
    }
  }
}

TEST_CASE("a revoked host key is refused in every file and under every name of the host") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  const std::string line = sshd.known_hosts_line();
  const std::string key = line.substr(line.find(' '));
  std::string tabs = "@revoked" + (" cluster" + key);
  std::replace(tabs.begin(), tabs.end(), ' ', '\t');
  const std::string good = sshd.scratch().write("good", line + "cluster" + key);
  const std::string revoked = sshd.scratch().write("revoked", "@revoked " + line);
  const std::string alias = sshd.scratch().write("alias", tabs);
  const std::vector<std::vector<std::string>> all_lines = {
      {cat("UserKnownHostsFile ", good, " ", revoked)},
      {cat("UserKnownHostsFile ", good), cat("GlobalKnownHostsFile /nowhere ", revoked)},
      {cat("UserKnownHostsFile ", good, " ", alias), "HostKeyAlias Cluster"},
  };
  for (const bool by_system_ssh : {false, true}) {
    for (const std::string policy : {"yes", "no", "accept-new", ""}) {
      for (std::vector<std::string> lines : all_lines) {
        if (!policy.empty()) lines.push_back("StrictHostKeyChecking " + policy);
        const std::string text =
            outcome(user_of(sshd, by_system_ssh, lines), sshd.target("echo up"));
        CAPTURE(by_system_ssh);
        CAPTURE(lines[0]);
        CAPTURE(policy);
        CHECK_MESSAGE(contains(text, "revoked"), text);
      }
    }
  }
}

TEST_CASE("a key of another kind than the known ones is a changed key") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  REQUIRE(run_program({"ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", sshd.path("rsa")}) == 0);
  const std::string line = cat("[127.0.0.1]:", sshd.port(), " ", content_of(sshd.path("rsa.pub")));
  const std::string known = sshd.scratch().write("known_hosts", line);
  for (const bool by_system_ssh : {false, true}) {
    for (const std::string policy : {"no", "accept-new", ""}) {
      const std::string setting = policy.empty() ? "" : "StrictHostKeyChecking " + policy;
      const std::string text =
          outcome(user_of(sshd, by_system_ssh, {setting}), sshd.target("echo up"));
      CAPTURE(by_system_ssh);
      CAPTURE(policy);
      CHECK_MESSAGE(contains(text, "has changed"), text);
      CHECK(content_of(known) == line);
    }
  }
}

TEST_CASE("a key without a certificate is refused where there is an authority, or as configured") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  REQUIRE(run_program({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", sshd.path("ca")}) == 0);
  const std::string line =
      cat("@cert-authority [127.0.0.1]:", sshd.port(), " ", content_of(sshd.path("ca.pub")));
  const std::string known = sshd.scratch().write("known_hosts", line);
  std::string text = outcome(sshd.user(), sshd.target("echo up"));
  CHECK_MESSAGE(contains(text, "its host key is unknown"), text);
  CHECK_MESSAGE(contains(text, known + ":1 names an authority"), text);
  CHECK(content_of(known) == line);
  CHECK(outcome(sshd.user({"StrictHostKeyChecking accept-new"}), sshd.target("echo up")) == "up\n");
  CHECK(content_of(known) == line + sshd.known_hosts_line());
}

TEST_CASE("a server with several keys is asked for one that is known") {
  HVD_NEEDS_SSHD();
  ScratchFolder scratch;
  const std::string rsa = (scratch.path() / "rsa").string();
  REQUIRE(run_program({"ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", rsa}) == 0);
  PrivateSshd sshd({"HostKey " + rsa});
  const SshUser user = sshd.user({"StrictHostKeyChecking yes"});
  for (const std::string& name : {cat("[127.0.0.1]:", sshd.port()), std::string("127.0.0.1")}) {
    for (const std::string& key : {rsa + ".pub", sshd.path("host_key.pub")}) {
      CAPTURE(key);
      sshd.scratch().write("known_hosts", name + " " + content_of(key));
      CHECK(outcome(user, sshd.target("echo up")) == "up\n");
    }
  }
}

TEST_CASE("a host key is looked up under HostKeyAlias") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  CHECK(outcome(sshd.user({"HostKeyAlias cluster"}), sshd.target("echo up")) == "up\n");
  CHECK(content_of(sshd.path("known_hosts")).starts_with("cluster ssh-ed25519 "));
}

}  // namespace
}  // namespace hvd::launcher
