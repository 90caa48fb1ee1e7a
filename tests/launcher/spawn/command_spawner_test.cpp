#include "launcher/spawn/command_spawner.h"

#include <doctest/doctest.h>

#include "conformance/spawner_conformance.h"

namespace hvd::launcher {

TEST_CASE("the command spawner does what a spawner owes") {
  ScratchFolder folder;
  net::asio::io_context loop(1);
  // Stands for `docker exec -i {host}`: the process at its far end is not a child of the command
  // either.
  CommandSpawner spawner;
  SpawnTarget target;
  target.command = "setsid --fork --wait sh -c 'exec \"$@\"' {host}";
  target.host = "c0";
  target.agent_dir = folder.path().string();
  check_spawner(loop, spawner, target);
}

TEST_CASE("a command that is run again must not ask the user") {
  for (const bool may_ask : {true, false}) {
    net::asio::io_context loop(1);
    CommandSpawner spawner;
    SpawnTarget target;
    target.command = "echo may ask: ${SSH_ASKPASS_REQUIRE-yes} >&2; exit 1; ssh";
    target.host = "c0";
    target.agent_path = "/bin/true";
    target.may_ask = may_ask;
    const auto stream = run_on(loop, spawner.spawn(target, [](SpawnStage) {}));
    REQUIRE_FALSE(stream.ok());
    const std::string expected = may_ask ? "may ask: yes" : "may ask: never";
    CHECK_MESSAGE(stream.status().message().find(expected) != std::string::npos,
                  stream.status().message());
  }
}

TEST_CASE("a launch command is filled in for its host") {
  SpawnTarget target;
  target.host = "pod-0";
  CHECK(command_line("docker exec -i {host}", target) == "docker exec -i pod-0 /bin/sh");
  CHECK(command_line("kubectl exec -i {host} --", target) == "kubectl exec -i pod-0 -- /bin/sh");
  CHECK(command_line("ssh -F mine", target) == "ssh -F mine pod-0 /bin/sh");
  target.user = "me";
  target.port = 2222;
  CHECK(command_line("ssh -p {port}", target) == "ssh -p 2222 me@pod-0 /bin/sh");
  CHECK(command_line("run -u {user} {host} {host}", target) == "run -u me pod-0 pod-0 /bin/sh");
  target.user = "a$b";
  CHECK(command_line("ssh", target) == "ssh 'a$b@pod-0' /bin/sh");
}

}  // namespace hvd::launcher
