#include "launcher/state/remote_command.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace hvd::launcher {

TEST_CASE("a command goes to the launcher's machine by srun in its job, else by ssh") {
  using Words = std::vector<std::string>;
  JobRecord record;
  record.launcher.host = "node7";
  const Words by_ssh{"ssh",
                     "-oBatchMode=yes",
                     "-oConnectTimeout=10",
                     "--",
                     "node7",
                     "env HOROVOD_STATE_DIR=/scratch/s '/opt/x y/horovodrun' stop node7:12"};
  const auto stop = [&] {
    return remote_command_line(record, "/opt/x y/horovodrun", "/scratch/s", {"stop", "node7:12"});
  };
  CHECK(stop() == by_ssh);
  record.allocation = "4711";  // of salloc: the launcher is on a login node
  CHECK(stop() == by_ssh);
  record.launcher.host = "node7.example.org";
  record.node = "node7";
  CHECK(remote_command_line(record, "/bin/horovodrun", "/s", {"stop"}) ==
        Words{"srun", "--jobid=4711", "--overlap", "-N1", "-n1", "--nodelist=node7", "--", "env",
              "HOROVOD_STATE_DIR=/s", "/bin/horovodrun", "stop"});
}

}  // namespace hvd::launcher
