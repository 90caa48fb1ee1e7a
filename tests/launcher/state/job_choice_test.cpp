#include "launcher/state/job_choice.h"

#include <doctest/doctest.h>
#include <unistd.h>

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
  record.allocation = "4711";  // with salloc the launcher runs on a login node
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

TEST_CASE("Slurm's number and name mean a job where no word of horovodrun does") {
  StateView view;
  view.observer = ProcessIdentity::own();
  const auto add = [&](const char* name, const char* number, const char* allocation, bool runs) {
    JobRecord record;
    record.launcher = view.observer;
    if (!runs) record.launcher.pid = 4'000'000, record.state = "ended";
    record.name = name;
    record.allocation = number;
    record.allocation_name = allocation;
    view.records.push_back(record);
  };
  const auto chosen = [&](const std::string& word) {
    const auto record = choose_job(view, word, "stop");
    return record.ok() ? record->name : record.status().message().substr(0, 17);
  };
  add("first", "4711", "train", false);
  add("second", "4711", "train", true);
  add("train-2", "4712", "first", true);
  add("third", "4713", "other", false);
  add("4000000", "4714", "x", false);
  CHECK(chosen("4711") == "second");
  CHECK(chosen("train") == "second");
  CHECK(chosen("4712") == "train-2");
  CHECK(chosen("4713") == "third");
  CHECK(chosen("first") == "train-2");  // the first job has ended
  CHECK(chosen("second") == "second");
  CHECK(chosen("4715") == "there is no job 4");
  view.records[0].state = "starting", view.records[0].launcher.pid = view.observer.pid;
  CHECK(chosen("4711") == "several jobs run;");
  CHECK(chosen("first") == "first");
}

}  // namespace hvd::launcher
