#include "launcher/allocation/launch_method.h"

#include <doctest/doctest.h>

#include "base/text.h"

namespace hvd::launcher {
namespace {

const std::vector<SlurmNode> kNodes = {{"a", "", 0, -1}, {"b.cluster", "gpu:a100:2", 2, 1}};

LaunchMethod method_of(const Host& host, const std::vector<SlurmNode>& nodes = kNodes,
                       bool is_in_step = false) {
  const LaunchSettings settings;
  return LaunchMethods(settings, "17", nodes,
                       {"SLURM_GPUS", "SLURM_CONF", "SRUN_DEBUG", "SLURM_SPANK_x", "PATH"},
                       is_in_step)
      .of(host);
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a node of the job is reached by a step that inherits no request") {
  const LaunchMethod method = method_of({"a", "", 1});
  CHECK(method.is_step);
  CHECK(method.may_be_local);
  CHECK(method.silence.lease_seconds == 12);
  CHECK(method.silence.host_timeout_seconds == 12);
  CHECK_MESSAGE(
      method.command.starts_with("env -u SLURM_GPUS -u SRUN_DEBUG SLURM_JOB_ID=17 SLURM_JOBID=17 "
                                 "srun "),
      method.command);
  CHECK(has(method.command, " --mpi=none "));
  CHECK(has(method.command, " --nodelist=a "));
  CHECK_FALSE(has(method.command, "--gres"));
  CHECK_FALSE(has(method.command, "--het-group"));
}

TEST_CASE("the step requests the resources of its node, in its component") {
  for (const char* name : {"b", "b.cluster", "b.other"}) {
    const LaunchMethod method = method_of({name, "", 1});
    CHECK(has(method.command, " --het-group=1 --gres=gpu:a100:2 --nodelist=b.cluster "));
  }
}

TEST_CASE("a launcher within a step starts its own node's ranks by a step too") {
  CHECK_FALSE(method_of({"a", "", 1}, kNodes, true).may_be_local);
}

TEST_CASE("other hosts, users and ports are reached by ssh") {
  for (const Host& host : {Host{"c", "", 1}, Host{"a", "nobody-here", 1}, Host{"a", "", 1, 2222}}) {
    const LaunchMethod method = method_of(host);
    CHECK_FALSE(method.is_step);
    CHECK(method.command.empty());
    CHECK(method.silence.lease_seconds == 45);
    CHECK(method.silence.host_timeout_seconds == 45);
  }
}

TEST_CASE("a host that an address names is the node of that address in any spelling") {
  const std::vector<SlurmNode> nodes = {{"10.1.2.3", "", 0, -1}, {"fd81::1", "", 0, -1}};
  for (const char* name : {"10.1.2.3", "::ffff:10.1.2.3", "::ffff:0a01:0203"}) {
    const LaunchMethod method = method_of({name, "", 1}, nodes);
    CHECK_MESSAGE(has(method.command, " --nodelist=10.1.2.3 "), name);
  }
  for (const char* name : {"fd81::1", "fd81:0:0:0:0:0:0:1", "FD81::0001"}) {
    const LaunchMethod method = method_of({name, "", 1}, nodes);
    CHECK_MESSAGE(has(method.command, " --nodelist=fd81::1 "), name);
  }
  CHECK_FALSE(method_of({"10.1.2.4", "", 1}, nodes).is_step);
}

}  // namespace hvd::launcher
