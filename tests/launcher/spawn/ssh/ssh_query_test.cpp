#include "launcher/spawn/ssh/ssh_query.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include "tests/conformance/spawner_conformance.h"
#include "tests/launcher/spawn/on_loop.h"

namespace hvd::launcher {
namespace {

// A user with this configuration, who queries this machine's ssh program.
struct Asker {
  explicit Asker(const std::string& config) {
    scratch.write("config", config);
    user.home = user.directory = scratch.path().string();
  }
  Result<SshSettings> ask(SshQuery& query, const std::string& host, const std::string& name = "") {
    SpawnTarget target;
    target.host = host;
    target.user = name;
    return run_on(loop, query.settings_of(target));
  }

  ScratchFolder scratch;
  SshUser user = SshUser::current();
  net::asio::io_context loop{1};
};

bool has_ssh() { return ::access("/usr/bin/ssh", X_OK) == 0; }

TEST_CASE("hosts that share an answer get what each would have got for itself") {
  if (!has_ssh()) {
    MESSAGE("SKIP: /usr/bin/ssh is missing (package openssh-client)");
    return;
  }
  for (const char* config :
       {"", "Host *\n  Port 2202\n  User bob\n",
        "Host=\"*\"\nIdentityFile ~/k\nMatch final all\nPort 3\n", "Host b*\n  Port 5\n",
        "Host * !b\n  Port 5\n", "Match host b\n  HostKeyAlias x\n",
        "Match originalhost b\n  Port 7\n", "Match exec \"test %n = b\"\n  Port 9\n",
        "HostName %h.cluster\n", "HostName login\n", "UserKnownHostsFile /k/%h\n",
        "Host *\nStrictHostKeyChecking ask\n", "\"Host\" b\n  Port 4\n", "Host=b\nPort 4\n"}) {
    CAPTURE(config);
    Asker asker(config);
    SshQuery shared(asker.user);
    for (const char* host : {"a", "b", "bb.x", "B", "10.0.0.1", "127.1", "::1"}) {
      for (const char* name : {"", "carol"}) {
        CAPTURE(host);
        SshQuery alone(asker.user);
        const auto together = asker.ask(shared, host, name);
        const auto wanted = asker.ask(alone, host, name);
        REQUIRE(together.ok());
        REQUIRE(wanted.ok());
        CHECK(*together == *wanted);
      }
    }
  }
}

TEST_CASE("a question that is given up is asked by the next") {
  if (!has_ssh()) return;
  Asker asker("");
  SshQuery query(asker.user);
  SpawnTarget target;
  target.host = "a";
  static_cast<void>(
      run_and_cancel(asker.loop, query.settings_of(target), std::chrono::milliseconds(0)));
  const auto settings = asker.ask(query, "b");
  REQUIRE(settings.ok());
  CHECK(settings->host_name == "b");
}

TEST_CASE("an error of the configuration is ssh's own") {
  if (!has_ssh()) return;
  Asker asker("NoSuchOption yes\n");
  SshQuery query(asker.user);
  const auto settings = asker.ask(query, "a");
  REQUIRE_FALSE(settings.ok());
  CHECK(settings.status().message().find("line 1: Bad configuration option: nosuchoption") !=
        std::string::npos);
}

}  // namespace
}  // namespace hvd::launcher
