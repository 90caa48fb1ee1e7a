#include "launcher/state/job_choice.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace hvd::launcher {

TEST_CASE("a command goes to the launcher's machine by srun in its job, else by ssh") {
  using Words = std::vector<std::string>;
  JobRecord record;
  record.launcher.host = "node7";
  const Words by_ssh{"ssh",
                     "-T",
                     "-oBatchMode=yes",
                     "-oConnectTimeout=10",
                     "--",
                     "node7",
                     "env HOROVOD_STATE_DIR=/scratch/s HOROVOD_COMMAND_SENT=1 '/opt/x "
                     "y/horovodrun' stop node7:12"};
  const auto stop = [&] {
    return remote_command_line(record, "/opt/x y/horovodrun", "/scratch/s", {"stop", "node7:12"},
                               false);
  };
  CHECK(stop() == by_ssh);
  record.allocation = "4711";  // of salloc: the launcher is on a login node
  CHECK(stop() == by_ssh);
  record.launcher.host = "node7.example.org";
  record.node = "node7";
  const auto step = [&](const char* flag, const char* command) {
    return Words{"srun",
                 "--jobid=4711",
                 "--overlap",
                 "--mpi=none",
                 "-N1",
                 "-n1",
                 "--nodelist=node7",
                 flag,
                 "--",
                 "env",
                 "HOROVOD_STATE_DIR=/s",
                 "HOROVOD_COMMAND_SENT=1",
                 "/bin/horovodrun",
                 command};
  };
  CHECK(remote_command_line(record, "/bin/horovodrun", "/s", {"stop"}, false) ==
        step("--quit-on-interrupt", "stop"));
  CHECK(remote_command_line(record, "/bin/horovodrun", "/s", {"top"}, true) ==
        step("--pty", "top"));
}

}  // namespace hvd::launcher
