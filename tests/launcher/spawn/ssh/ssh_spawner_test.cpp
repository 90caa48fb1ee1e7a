#include "launcher/spawn/ssh/ssh_spawner.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/clock.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/spawn/child_process.h"
#include "tests/launcher/spawn/ssh/ssh_outcome.h"
#include "tests/open_descriptors.h"

namespace hvd::launcher {
namespace {

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
  // The folder has only the agent, which the launcher does not send again.
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

TEST_CASE("algorithms of the configuration are the ones that are spoken") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd({"Ciphers aes256-ctr"});
  CHECK(contains(outcome(sshd.user({"Ciphers aes128-ctr"}), sshd.target("echo up")),
                 "the ssh handshake failed"));
  CHECK(outcome(sshd.user({"Ciphers aes256-ctr", "Compression yes"}), sshd.target("echo up")) ==
        "up\n");
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

TEST_CASE("the certificate beside a key counts, and one that has expired is named") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  const SshUser user = sshd.user();
  const auto make_key = [&](const std::string& name) {
    REQUIRE(run_program({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", sshd.path(name)}) ==
            0);
  };
  const auto sign = [&](const std::string& name, const std::string& validity) {
    REQUIRE(run_program({"ssh-keygen", "-q", "-s", sshd.path("authority"), "-I", "test", "-n",
                         user.name, "-V", validity, sshd.path(name + ".pub")}) == 0);
  };
  make_key("authority");
  make_key("other");
  sshd.scratch().write("authorized_keys",
                       "cert-authority " + content_of(sshd.path("authority.pub")));
  SpawnTarget target = sshd.target("echo up");
  CHECK(contains(outcome(user, target), "authentication refused"));
  sign("other", "-1h:+1h");
  target.identity_file = sshd.path("other");
  CHECK(outcome(user, target) == "up\n");
  target.identity_file = "";
  sign("id", "-1h:+1h");
  CHECK(outcome(user, target) == "up\n");
  sign("id", "-2h:-1h");
  const std::string text = outcome(user, target);
  CAPTURE(text);
  CHECK(contains(text, "Permission denied (publickey)"));
  CHECK(contains(text, "the certificate " + sshd.path("id-cert.pub") + " has expired at "));
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
  REQUIRE(run_on(loop, read_line(**agent)).ok());  // ssh-agent now listens
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

TEST_CASE("a server that closes each connection is tried again, and reported") {
  HVD_NEEDS_SSHD();
  for (const bool by_system_ssh : {false, true}) {
    CAPTURE(by_system_ssh);
    PrivateSshd sshd;
    net::asio::io_context loop(1);
    net::asio::ip::tcp::acceptor acceptor(loop, {net::asio::ip::address_v4::loopback(), 0});
    int connections = 0;
    const std::function<void()> accept = [&] {
      acceptor.async_accept([&](const net::error_code& error, net::asio::ip::tcp::socket socket) {
        if (error) return;
        ++connections;
        socket.close();
        accept();
      });
    };
    accept();
    SshSpawner spawner(user_of(sshd, by_system_ssh, {}), std::chrono::milliseconds(1));
    SpawnTarget target = sshd.target("echo up");
    target.port = acceptor.local_endpoint().port();
    const SpawnResult stream = spawn(loop, spawner, target);
    REQUIRE_FALSE(stream.ok());
    CAPTURE(stream.status().message());
    CHECK(contains(stream.status().message(), by_system_ssh
                                                  ? "kex_exchange_identification"
                                                  : "closed the connection and sent nothing"));
    CHECK(contains(stream.status().message(), "MaxStartups"));
    CHECK(connections == 6);
  }
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
    CHECK(::waitpid(-1, nullptr, WNOHANG) == 0);  // sshd runs, and no process has ended unnoticed
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
  {
    PrivateSshd sshd({"ForceCommand echo 'sh: 1: Cannot fork' >&2; exit 2"});
    const std::string text = outcome(sshd.user(), sshd.target("echo up"));
    CAPTURE(text);
    CHECK(text.ends_with("raise nproc in /etc/security/limits.conf there"));
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

// Starts `count` agents at once.
struct Sessions {
  Sessions(net::asio::io_context& loop, SshSpawner& spawner, const SpawnTarget& target,
           size_t count) {
    for (size_t i = 0; i < count; ++i) {
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
    const Deadline deadline = Deadline::after_seconds(120);
    while (streams.size() + failures.size() < count && !deadline.passed()) {
      loop.restart();
      loop.run_one_for(std::chrono::seconds(1));
    }
  }

  std::vector<std::unique_ptr<Duplex>> streams;
  std::vector<std::string> failures;
};

// Hosts whose names begin with "behind" are behind a jump host.
SshUser user_behind(PrivateSshd& jump, PrivateSshd& sshd, const std::string& of_jump = "") {
  return sshd.user({"Host jump", "  HostName 127.0.0.1", cat("  Port ", jump.port()),
                    "  IdentityFile " + jump.path("id"), "  StrictHostKeyChecking accept-new",
                    of_jump, "Host behind*", "  HostName 127.0.0.1", cat("  Port ", sshd.port()),
                    "  ProxyJump jump"});
}

TEST_CASE("all hosts behind a jump host share one connection to it") {
  HVD_NEEDS_SSHD();
  // Two logins at once fail.
  PrivateSshd jump({"MaxStartups 2:100:2"});
  PrivateSshd sshd;
  const size_t before = test::open_descriptors();
  {
    net::asio::io_context loop(1);
    std::optional<SshSpawner> spawner(user_behind(jump, sshd));
    SpawnTarget target = sshd.target("exec cat");
    target.host = "behind1";
    Sessions sessions(loop, *spawner, target, 16);
    CHECK_MESSAGE(sessions.failures.empty(),
                  (sessions.failures.empty() ? "" : sessions.failures[0]));
    REQUIRE(sessions.streams.size() == 16);
    for (const auto& stream : sessions.streams) {
      CHECK(run_on(loop, stream->write(as_bytes("echo\n"))).ok());
      const auto echoed = run_on(loop, read_line(*stream));
      REQUIRE(echoed.ok());
      CHECK(*echoed == "echo\n");
    }
    sessions.streams.clear();
    spawner.reset();
    run_out(loop);
  }
  CHECK(test::open_descriptors() == before);
}

TEST_CASE(
    "a jump host that refuses the login is named, and one that cannot reach a host is not tried "
    "again") {
  HVD_NEEDS_SSHD();
  PrivateSshd jump;
  PrivateSshd sshd;
  SpawnTarget target = sshd.target("exec cat");
  target.host = "behind1";
  target.port = 1;
  const SshUser user = user_behind(jump, sshd);
  net::asio::io_context loop(1);
  {
    SshSpawner spawner(user);
    const SpawnResult stream = spawn(loop, spawner, target);
    REQUIRE_FALSE(stream.ok());
    CHECK(stream.status().message() ==
          "its jump host jump cannot connect to 127.0.0.1 port 1; run 'ssh -p 1 behind1 true' to "
          "see why");
  }
  jump.scratch().write("authorized_keys", "");
  target.port = 0;
  SshSpawner spawner(user);
  const Sessions sessions(loop, spawner, target, 3);
  REQUIRE(sessions.failures.size() == 3);
  for (const std::string& failure : sessions.failures) {
    CAPTURE(failure);
    CHECK(contains(failure, "ssh cannot reach its jump host jump: "));
    CHECK(contains(failure, "Permission denied (publickey)"));
  }
  run_out(loop);
}

TEST_CASE("a shared connection of the user to a jump host carries the hosts behind it") {
  HVD_NEEDS_SSHD();
  PrivateSshd jump;
  PrivateSshd sshd;
  const std::string socket = sshd.path("shared");
  const SshUser user = user_behind(jump, sshd, "  ControlPath " + socket);
  net::asio::io_context loop(1);
  ChildCommand command;
  command.arguments = {"ssh",
                       "-F",
                       user.directory + "/config",
                       "-M",
                       "-N",
                       "-o",
                       "PermitLocalCommand=yes",
                       "-o",
                       "LocalCommand=echo",
                       "jump"};
  command.end = ChildEnd::kTerminate;
  const auto master = ChildProcess::start(loop.get_executor(), command);
  REQUIRE(master.ok());
  REQUIRE(run_on(loop, read_line(**master)).ok());
  jump.scratch().write("authorized_keys", "");
  SpawnTarget target = sshd.target("echo up");
  target.host = "behind1";
  CHECK(outcome(user, target) == "up\n");
  (*master)->close();
  run_out(loop);
}

TEST_CASE("many sessions run at once on one thread") {
  HVD_NEEDS_SSHD();
  PrivateSshd sshd;
  net::asio::io_context loop(1);
  SshSpawner spawner(sshd.user());
  const SpawnTarget target = sshd.target("exec cat");
  constexpr size_t kSessions = 32;
  Sessions sessions(loop, spawner, target, kSessions);
  std::vector<std::unique_ptr<Duplex>>& streams = sessions.streams;
  CHECK_MESSAGE(sessions.failures.empty(), (sessions.failures.empty() ? "" : sessions.failures[0]));
  REQUIRE(streams.size() == kSessions);
  for (size_t i = 0; i < kSessions; ++i) {
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
