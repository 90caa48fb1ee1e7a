#include "launcher/spawn/ssh/ssh_spawner.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "base/clock.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/spawn/child_process.h"
#include "tests/launcher/spawn/private_sshd.h"
#include "tests/open_descriptors.h"

namespace hvd::launcher {
namespace {

// Ends a test case where there can be no sshd, by name and with the reason.
#define HVD_NEEDS_SSHD()                                     \
  if (const std::string why = why_no_sshd(); !why.empty()) { \
    MESSAGE("SKIP: " << why);                                \
    return;                                                  \
  }

// For what needs a program between ssh and the host, which is the system's ssh's business.
constexpr char kProxyCommand[] =
    "ProxyCommand bash -c 'exec 3<>/dev/tcp/127.0.0.1/%p; cat <&3 & cat >&3'";

// The user's configuration with these lines, for libssh or for the system's ssh.
SshUser user_of(PrivateSshd& sshd, bool by_system_ssh, std::vector<std::string> lines) {
  if (by_system_ssh) lines.emplace_back(kProxyCommand);
  return sshd.user(lines);
}

SpawnResult spawn(net::asio::io_context& loop, SshSpawner& spawner, SpawnTarget target) {
  return run_on(loop, spawner.spawn(target, [](SpawnStage) {}));
}

// Returns the output of an agent that started, or the reason why it did not start.
std::string outcome(SshUser user, SpawnTarget target) {
  net::asio::io_context loop(1);
  SshSpawner spawner(std::move(user));
  const std::string text = said_by(loop, spawn(loop, spawner, target));
  run_out(loop);
  return text;
}

std::string content_of(const std::string& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("the ssh spawner does what a spawner owes") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  net::asio::io_context loop(1);
  SshSpawner spawner(sshd.user());
  check_spawner(loop, spawner, sshd.target(""));
}

TEST_CASE("the ssh spawner owes the same by the system's ssh") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  net::asio::io_context loop(1);
  SshSpawner spawner(sshd.user({kProxyCommand}));
  check_spawner(loop, spawner, sshd.target(""));
}

TEST_CASE("an agent is sent once and found the next time") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  const SshUser user = sshd.user();
  const SpawnTarget target = sshd.target("echo up; echo $0");
  const std::string first = outcome(user, target);
  CHECK(first.starts_with("up\n" + sshd.path("agents/horovod-agent-")));
  // Nothing but the agent is left there, and it is not sent again.
  const std::filesystem::directory_iterator files(sshd.path("agents"));
  const std::filesystem::path file = files->path();
  CHECK(std::distance(files, std::filesystem::directory_iterator()) == 1);
  const auto written = std::filesystem::last_write_time(file);
  CHECK(outcome(user, target) == first);
  CHECK(std::filesystem::last_write_time(file) == written);
}

TEST_CASE("ranks get the login's file mode mask, not the delivery's") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  const SshUser user = sshd.user();
  const SpawnTarget target = sshd.target("umask");
  const std::string first = outcome(user, target);
  CHECK(first != "0077\n");
  CHECK(outcome(user, target) == first);
}

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
  // OpenSSH itself does not find what it has added for an alias with capital letters.
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

TEST_CASE("algorithms of the configuration are the ones that are spoken") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd({"Ciphers aes256-ctr"});
  CHECK(contains(outcome(sshd.user({"Ciphers aes128-ctr"}), sshd.target("echo up")),
                 "the ssh handshake failed"));
  CHECK(outcome(sshd.user({"Ciphers aes256-ctr", "Compression yes"}), sshd.target("echo up")) ==
        "up\n");
}

TEST_CASE("a host key is looked up under HostKeyAlias") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  CHECK(outcome(sshd.user({"HostKeyAlias cluster"}), sshd.target("echo up")) == "up\n");
  CHECK(content_of(sshd.path("known_hosts")).starts_with("cluster ssh-ed25519 "));
}

TEST_CASE("HostName, Port, User and IdentityFile of the configuration count") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  SpawnTarget target = sshd.target("echo up");
  target.host = "sshd_of-the.test";
  const SshUser user = sshd.user({"Host sshd_of-the.test", "  HostName 127.0.0.1"});
  CHECK(outcome(user, target) == "up\n");

  const SshUser nobody = sshd.user({"User no-such-user"});
  const std::string text = outcome(nobody, sshd.target("echo up"));
  CAPTURE(text);
  CHECK(text.starts_with("authentication refused for user no-such-user; tried " + sshd.path("id") +
                         "; it accepts publickey"));
}

TEST_CASE("a refused key is named, with the user and what is accepted") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  sshd.scratch().write("authorized_keys", "");
  const SshUser user = sshd.user();
  SpawnTarget target = sshd.target("echo up");
  REQUIRE(run_program({"ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f",
                       sshd.path("locked")}) == 0);
  target.identity_file = sshd.path("locked");
  std::string text = outcome(user, target);
  CAPTURE(text);
  CHECK(text == "authentication refused for user " + user.name + "; tried " + sshd.path("locked") +
                    " (needs its passphrase: run ssh-add), " + sshd.path("id") +
                    "; it accepts publickey");
  target.identity_file = sshd.path("missing");
  text = outcome(user, target);
  CHECK(contains(text, sshd.path("missing") + " (does not exist)"));
}

TEST_CASE("the key given for the job is used") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  REQUIRE(run_program({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", sshd.path("other")}) ==
          0);
  std::filesystem::copy_file(sshd.path("other.pub"), sshd.path("authorized_keys"),
                             std::filesystem::copy_options::overwrite_existing);
  const SshUser user = sshd.user();
  SpawnTarget target = sshd.target("echo up");
  CHECK(contains(outcome(user, target), "authentication refused"));
  target.identity_file = sshd.path("other");
  CHECK(outcome(user, target) == "up\n");
}

TEST_CASE("keys of an ssh-agent are used") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  const std::string socket = sshd.path("agent.sock");
  net::asio::io_context loop(1);
  ChildCommand command;
  command.arguments = {"ssh-agent", "-D", "-a", socket};
  command.end = ChildEnd::kTerminate;
  const auto agent = ChildProcess::start(loop.get_executor(), command);
  REQUIRE(agent.ok());
  REQUIRE(run_on(loop, read_line(**agent)).ok());  // it listens
  REQUIRE(run_program({"env", "SSH_AUTH_SOCK=" + socket, "ssh-add", "-q", sshd.path("id")}) == 0);
  std::filesystem::rename(sshd.path("id"), sshd.path("hidden"));
  CHECK(outcome(sshd.user({"IdentityAgent " + socket}), sshd.target("echo up")) == "up\n");
  (*agent)->close();
  run_out(loop);
}

TEST_CASE("a closed port and a name that does not resolve are one sentence each") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  const SshUser user = sshd.user();
  SpawnTarget target = sshd.target("echo up");
  target.port = 1;
  CHECK(outcome(user, target) == "nothing listens on port 1 of 127.0.0.1 (connection refused)");
  target.host = "no-such-host.invalid";
  CHECK(contains(outcome(user, target), "the name 'no-such-host.invalid' does not resolve"));
}

TEST_CASE("a server that is not an sshd is reported as such") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  net::asio::io_context loop(1);
  net::asio::ip::tcp::acceptor acceptor(loop, {net::asio::ip::address_v4::loopback(), 0});
  acceptor.async_accept(
      [](const net::error_code&, net::asio::ip::tcp::socket socket) { socket.close(); });
  SshSpawner spawner(sshd.user());
  SpawnTarget target = sshd.target("echo up");
  target.port = acceptor.local_endpoint().port();
  const SpawnResult stream = spawn(loop, spawner, target);
  REQUIRE_FALSE(stream.ok());
  CHECK(contains(stream.status().message(), "closed the connection without a word"));
}

TEST_CASE("a host that never answers is given up by cancelling, at a stage that has a name") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  const size_t before = test::open_descriptors();
  {
    net::asio::io_context loop(1);
    net::asio::ip::tcp::acceptor acceptor(loop, {net::asio::ip::address_v4::loopback(), 0});
    SshSpawner spawner(sshd.user());
    SpawnTarget target = sshd.target("echo up");
    target.port = acceptor.local_endpoint().port();
    std::vector<SpawnStage> stages;
    const auto result = run_and_cancel(
        loop, spawner.spawn(target, [&](SpawnStage stage) { stages.push_back(stage); }),
        std::chrono::seconds(2));  // enough to read the configuration, on a busy machine too
    CHECK((!result || !result->ok()));
    REQUIRE_FALSE(stages.empty());
    CHECK(stages.back() == SpawnStage::kConnect);
  }
  CHECK(test::open_descriptors() == before);
}

TEST_CASE("cancelling at any moment leaves no descriptor, no process and nothing on the loop") {
  HVD_NEEDS_SSHD();
  for (const bool by_system_ssh : {false, true}) {
    PrivateSshd sshd;
    const SshUser user = by_system_ssh ? sshd.user({kProxyCommand}) : sshd.user();
    const size_t before = test::open_descriptors();
    for (int delay = 0; delay < 60; delay += by_system_ssh ? 12 : 3) {
      net::asio::io_context loop(1);
      SshSpawner spawner(user);
      const auto result = run_and_cancel(
          loop,
          spawner.spawn(sshd.target("exec cat # " + std::to_string(delay)), [](SpawnStage) {}),
          std::chrono::milliseconds(delay));
    }
    CHECK(test::open_descriptors() == before);
    CHECK(::waitpid(-1, nullptr, WNOHANG) == 0);  // sshd lives, and nothing has died unnoticed
  }
}

TEST_CASE("noise of the login shell is skipped, and too much of it named") {
  HVD_NEEDS_SSHD();
  {
    PrivateSshd sshd(
        {"ForceCommand printf 'Welcome!\\nno newline'; eval \"$SSH_ORIGINAL_COMMAND\""});
    CHECK(outcome(sshd.user(), sshd.target("echo up")) == "up\n");
  }
  {
    PrivateSshd sshd({"ForceCommand yes Welcome; eval \"$SSH_ORIGINAL_COMMAND\""});
    const std::string text = outcome(sshd.user(), sshd.target("echo up"));
    CAPTURE(text);
    CHECK(
        text.starts_with("the login shell's start-up files print more than 64 KiB before the "
                         "agent can start, beginning with 'Welcome"));
  }
  {
    PrivateSshd sshd({"ForceCommand echo 'This account is closed.'; exit 1"});
    CHECK(outcome(sshd.user(), sshd.target("echo up")) ==
          "the login shell ended before the agent could start: ended with exit code 1; it printed "
          "'This account is closed.'");
  }
}

TEST_CASE("a refused session is named") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd({"MaxSessions 0"});
  const std::string text = outcome(sshd.user(), sshd.target("echo up"));
  CAPTURE(text);
  CHECK(text.starts_with("it refused a session (MaxSessions of its sshd?)"));
}

TEST_CASE("a directory that is not writable makes way for the next") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  SpawnTarget target = sshd.target("echo $0");
  target.agent_dir = sshd.scratch().write("file", "") + "/below";
  CHECK(outcome(sshd.user(), target).starts_with(sshd.path("home/.cache/horovod/horovod-agent-")));
}

TEST_CASE("many sessions run at once on one thread") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  net::asio::io_context loop(1);
  SshSpawner spawner(sshd.user());
  const SpawnTarget target = sshd.target("exec cat");
  constexpr int kSessions = 32;
  std::vector<std::unique_ptr<Duplex>> streams;
  std::vector<std::string> failures;
  for (int i = 0; i < kSessions; ++i) {
    net::asio::co_spawn(
        loop,
        [](SshSpawner& from, SpawnTarget to, auto& up, auto& failed) -> net::Task<void> {
          auto stream = co_await from.spawn(to, [](SpawnStage) {});
          if (stream.ok())
            up.push_back(std::move(*stream));
          else
            failed.push_back(stream.status().message());
        }(spawner, target, streams, failures),
        net::asio::detached);
  }
  const Deadline deadline = Deadline::after_seconds(60);
  while (streams.size() + failures.size() < kSessions && !deadline.passed()) {
    loop.restart();
    loop.run_one_for(std::chrono::seconds(1));
  }
  CHECK_MESSAGE(failures.empty(), (failures.empty() ? "" : failures[0]));
  REQUIRE(streams.size() == kSessions);
  for (int i = 0; i < kSessions; ++i) {
    const std::string line = cat("session ", i, "\n");
    CHECK(run_on(loop, streams[i]->write(as_bytes(line))).ok());
    const auto echoed = run_on(loop, read_line(*streams[i]));
    REQUIRE(echoed.ok());
    CHECK(*echoed == line);
  }
  streams.clear();
  run_out(loop);
}

TEST_CASE("a connection that breaks is an error for the reader") {
  HVD_NEEDS_SSHD();
  net::asio::io_context loop(1);
  SpawnResult stream = unavailable("not yet");
  {
    PrivateSshd sshd;
    SshSpawner spawner(sshd.user());
    stream = spawn(loop, spawner, sshd.target("read go; kill -9 $PPID; exec cat"));
    REQUIRE_MESSAGE(stream.ok(), stream.status().message());
    CHECK(run_on(loop, (*stream)->write(as_bytes("go\n"))).ok());
    const auto text = run_on(loop, read_to_end(**stream));
    CAPTURE((text.ok() ? *text : text.status().message()));
    CHECK((!text.ok() || !(*stream)->last_words().empty()));
  }
}

}  // namespace
}  // namespace hvd::launcher
