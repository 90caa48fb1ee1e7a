#include "launcher/allocation/launch_method.h"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

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
  CHECK(method.silence.lease_seconds == 45);
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

TEST_CASE("srun keeps the variables that find the job, and those of SPANK's plugins") {
  const std::vector<std::string> kept = {
      "SLURM_CONF",  "SLURM_CONF_SERVER",  "SLURM_CLUSTER_NAME",    "SLURM_WORKING_CLUSTER",
      "SLURM_JWT",   "SLURM_NODE_ALIASES", "SLURM_NETWORK",         "SLURM_JOB_ID",
      "SLURM_JOBID", "SLURM_SPANK_X11",    "_SLURM_SPANK_OPTION_x", "SBATCH_GRES"};
  const std::vector<std::string> removed = {
      "SLURM_LABELIO",      "SLURM_EXACT",         "SLURM_DEBUG",      "SLURM_STDINMODE",
      "SLURM_STDOUTMODE",   "SLURM_GPUS",          "SLURM_CPU_BIND",   "SLURM_OVERCOMMIT",
      "SLURM_MEM_PER_NODE", "SLURM_TRES_PER_TASK", "SLURM_EXPORT_ENV", "SRUN_CPUS_PER_TASK"};
  std::vector<std::string> all = kept;
  all.insert(all.end(), removed.begin(), removed.end());
  const LaunchSettings settings;
  const std::string command =
      LaunchMethods(settings, "17", kNodes, all, false).of({"a", "", 1}).command;
  for (const std::string& name : kept) CHECK_FALSE(has(command, cat(" -u ", name, " ")));
  for (const std::string& name : removed) CHECK_MESSAGE(has(command, cat(" -u ", name, " ")), name);
}

TEST_CASE("a node that joins the job is reached by a step") {
  const LaunchSettings settings;
  LaunchMethods methods(settings, "17", kNodes, {}, false);
  const Host host{"c", "", 1};
  CHECK(methods.question_about({"a", "", 1}).empty());
  CHECK(methods.question_about(host) == "exec scontrol show job -d 17");
  methods.take_answer("slurm_load_jobs error: Unable to contact slurm controller\n");
  methods.take_answer("JobId=18\n   NodeList=c\n");
  CHECK_FALSE(methods.of(host).is_step);
  CHECK(methods.of({"a", "", 1}).is_step);
  methods.take_answer(
      "JobId=17\n   NodeList=a,c\n     Nodes=a CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)\n");
  CHECK(has(methods.of(host).command, " --nodelist=c "));
  CHECK_FALSE(has(methods.of(host).command, "--gres"));
  CHECK(has(methods.of({"a", "", 1}).command, " --gres=gpu:1 --nodelist=a "));
  CHECK(methods.question_about(host).empty());
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

namespace {

LaunchSettings settings_with(const std::vector<std::pair<const char*, const char*>>& values) {
  Settings settings;
  for (const auto& [key, value] : values) CHECK(settings.set(key, value).ok());
  return LaunchSettings(settings);
}

void check(const LaunchSettings& settings, bool is_step, double host_timeout, double lease) {
  const SilenceLimits limits = silence_limits(settings, is_step);
  CHECK(limits.host_timeout_seconds == host_timeout);
  CHECK(limits.lease_seconds == lease);
}

}  // namespace

TEST_CASE("the limits of a job by its kind: a short host timeout leaves the lease as it is") {
  check({}, false, 45, 45);
  check({}, true, 12, 45);
  check(settings_with({{"min_num_proc", "1"}}), false, 3, 45);
  check(settings_with({{"min_num_proc", "1"}}), true, 3, 45);
  check(settings_with({{"host_timeout", "120"}}), false, 120, 45);
  check(settings_with({{"host_timeout", "120"}}), true, 120, 45);
  check(settings_with({{"host_timeout", "10"}}), false, 10, 45);
  check(settings_with({{"min_num_proc", "1"}, {"host_timeout", "20"}}), false, 20, 45);
  check(settings_with({{"min_num_proc", "1"}, {"lease", "21"}}), false, 3, 21);
  // In a job of constant size, a lease alone sets both limits.
  for (const bool is_step : {false, true}) {
    check(settings_with({{"lease", "7"}}), is_step, 7, 7);
    check(settings_with({{"lease", "90"}}), is_step, 90, 90);
  }
  check(settings_with({{"lease", "7"}, {"host_timeout", "20"}}), false, 20, 7);
}

}  // namespace hvd::launcher
