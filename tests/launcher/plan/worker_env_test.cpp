#include "launcher/plan/worker_env.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "horovod/version.h"
#include "launcher/allocation/dry_run.h"

namespace hvd::launcher {
namespace {

SlotPlan two_hosts() { return *plan_slots({{"a", "", 2}, {"b", "", 2}}, {}); }

}  // namespace

TEST_CASE("a remote host gets the environment but for what belongs to this machine and user") {
  const Environment inherited = {
      {"PATH", "/bin"},        {"HOME", "/root"}, {"USER", "u"},        {"XDG_RUNTIME_DIR", "/r"},
      {"SSH_AUTH_SOCK", "/s"}, {"DISPLAY", ":0"}, {"TMPDIR", "/t"},     {"BASH_FUNC_m%%", "() {}"},
      {"NCCL_DEBUG", "INFO"},  {"PWD", "/x"},     {"HOSTNAME", "here"}, {"LANG", "C.UTF-8"},
      {"SHELL", "/bin/sh"},    {"LOGNAME", "u"},  {"OLDPWD", "/y"},     {"HOROVOD_TIMELINE", "t"},
      {"odd name", "kept"}};
  CHECK(host_environment(inherited, false) == Environment{{"PATH", "/bin"},
                                                          {"NCCL_DEBUG", "INFO"},
                                                          {"LANG", "C.UTF-8"},
                                                          {"HOROVOD_TIMELINE", "t"},
                                                          {"odd name", "kept"}});
  CHECK(host_environment(inherited, true) == inherited);
}

TEST_CASE("a remote host gets no variable that describes the devices or the place of this one") {
  for (const char* name :
       {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
        "ZE_AFFINITY_MASK", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE",
        "SLURM_SHARDS_ON_NODE", "SLURM_CPUS_ON_NODE", "SLURM_TOPOLOGY_ADDR",
        "SLURM_TOPOLOGY_ADDR_PATTERN", "SLURMD_NODENAME"}) {
    const Environment others = {{"SLURM_TASKS_PER_NODE", "4"}};
    const Environment inherited = overlay({{name, "0"}}, others);
    CHECK_MESSAGE(host_environment(inherited, false) == others, name);
    CHECK_MESSAGE(host_environment(inherited, true) == inherited, name);
  }
}

TEST_CASE("no host inherits another job's or launcher's identity") {
  Environment inherited = {
      {"HOROVOD_RANK", "7"},         {"HOROVOD_JOB_SECRET", "s"}, {"HOROVOD_STORE", "unix:@x"},
      {"OMPI_COMM_WORLD_RANK", "1"}, {"PMI_RANK", "1"},           {"PMIX_RANK", "1"},
      {"SLURM_PROCID", "1"},         {"SLURM_LOCALID", "1"},      {"RANK", "7"},
      {"MASTER_ADDR", "elsewhere"},  {"JAX_PROCESS_ID", "7"},     {"ROLE_RANK", "7"},
      {"TORCHELASTIC_RUN_ID", "x"},  {"HOROVOD_RESULT_KEY", "s"}, {"SLURM_JOB_ID", "9"},
      {"OMPI_MCA_btl", "tcp"}};
  // With these variables, frameworks would treat a rank as a task of Slurm, LSF or Open MPI.
  for (const char* name : {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE",
                           "JSM_NAMESPACE_SIZE", "OMPI_MCA_orte_hnp_uri"})
    inherited.emplace_back(name, "2");
  const Environment kept = {{"SLURM_JOB_ID", "9"}, {"OMPI_MCA_btl", "tcp"}};
  CHECK(host_environment(inherited, true) == kept);
  CHECK(host_environment(inherited, false) == kept);
}

TEST_CASE("a setting that an outer job made for its hosts does not count as the user's choice") {
  const Environment outer = {
      {"HOROVOD_INTERFACE", "lo"}, {"GLOO_SOCKET_IFNAME", "lo"}, {"TP_SOCKET_IFNAME", "mine"}};
  CHECK(host_environment(outer, true) == Environment{{"TP_SOCKET_IFNAME", "mine"}});
}

TEST_CASE("a slot's environment says who it is") {
  const SlotPlan plan = two_hosts();
  CHECK(slot_environment(plan.slots[3], "b", 4) == Environment{{"HOROVOD_RANK", "3"},
                                                               {"HOROVOD_SIZE", "4"},
                                                               {"HOROVOD_LOCAL_RANK", "1"},
                                                               {"HOROVOD_LOCAL_SIZE", "2"},
                                                               {"HOROVOD_CROSS_RANK", "1"},
                                                               {"HOROVOD_CROSS_SIZE", "2"},
                                                               {"HOROVOD_HOSTNAME", "b"},
                                                               {"RANK", "3"},
                                                               {"WORLD_SIZE", "4"},
                                                               {"LOCAL_RANK", "1"},
                                                               {"LOCAL_WORLD_SIZE", "2"},
                                                               {"GROUP_RANK", "1"},
                                                               {"JAX_PROCESS_ID", "3"},
                                                               {"JAX_NUM_PROCESSES", "4"}});
}

TEST_CASE("a slot's environment in Slurm is that of a task of a step of the job's ranks") {
  const auto variables = [](const std::vector<Host>& hosts, size_t rank) {
    const SlotPlan plan = *plan_slots(hosts, {});
    std::map<std::string, std::string> found;
    for (const auto& [name, value] : slurm_environment(plan, plan.slots[rank])) found[name] = value;
    return found;
  };
  auto found = variables({{"n1", "", 2}, {"n2", "", 2}}, 3);
  CHECK(found == std::map<std::string, std::string>{{"SLURM_GTIDS", "2,3"},
                                                    {"SLURM_JOB_NUM_NODES", "2"},
                                                    {"SLURM_LOCALID", "1"},
                                                    {"SLURM_NNODES", "2"},
                                                    {"SLURM_NODEID", "1"},
                                                    {"SLURM_NPROCS", "4"},
                                                    {"SLURM_NTASKS", "4"},
                                                    {"SLURM_NTASKS_PER_NODE", "2"},
                                                    {"SLURM_PROCID", "3"},
                                                    {"SLURM_STEPID", "0"},
                                                    {"SLURM_STEP_NODELIST", "n1,n2"},
                                                    {"SLURM_STEP_NUM_NODES", "2"},
                                                    {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                                                    {"SLURM_TASK_PID", "0"}});
  found = variables({{"n3", "", 1}, {"n1", "", 2}, {"n2", "", 2}}, 0);
  CHECK(found["SLURM_STEP_TASKS_PER_NODE"] == "1,2(x2)");
  CHECK(found.count("SLURM_NTASKS_PER_NODE") == 0);
}

TEST_CASE("--no-torch-env leaves out torchrun's variables and no other") {
  const SlotPlan plan = two_hosts();
  Environment environment = slot_environment(plan.slots[0], "a", 4);
  environment.emplace_back("MASTER_ADDR", "10.0.0.1");
  environment.emplace_back("MASTER_PORT", "1");
  const size_t before = environment.size();
  remove_torch_variables(environment);
  CHECK(environment.size() == before - 7);
  for (const auto& [name, value] : environment) {
    CHECK((name.starts_with("HOROVOD_") || name.starts_with("JAX_")));
  }
  Settings settings;
  CHECK(settings.set("no_torch_env", "1").ok());
  const std::string text = plan_as_json(plan, LaunchSettings(settings));
  CHECK(text.find("\"WORLD_SIZE\"") == std::string::npos);
  CHECK(text.find("\"HOROVOD_SIZE\"") != std::string::npos);
}

TEST_CASE("a flag that has a variable reaches the ranks by it") {
  Settings settings;
  CHECK(flag_environment(LaunchSettings(settings)).empty());
  CHECK(settings.set("stall_check_disable", "yes").ok());
  CHECK(settings.set("lease", "9").ok());
  CHECK(settings.set("cycle_time", "2.5").ok());
  CHECK(settings.set("start_timeout", "7").ok());  // the launcher sets this for the job
  CHECK(settings.set("plugin_path", "p").ok());    // this setting has no flag
  CHECK(flag_environment(LaunchSettings(settings)) ==
        Environment{{"HOROVOD_LEASE", "9"},
                    {"HOROVOD_CYCLE_TIME", "2.5"},
                    {"HOROVOD_STALL_CHECK_DISABLE", "1"}});
}

TEST_CASE("the dry run shows what flags set, below what the launcher sets") {
  Settings settings;
  CHECK(settings.set("fusion_threshold", "8").ok());
  CHECK(settings.set("tcp", "1").ok());
  const auto plan = nlohmann::json::parse(plan_as_json(two_hosts(), LaunchSettings(settings)));
  for (const auto& rank : plan["ranks"]) {
    CHECK(rank["env"]["HOROVOD_FUSION_THRESHOLD"] == "8");
    CHECK(rank["env"]["NCCL_IB_DISABLE"] == "1");
    CHECK(rank["env"]["HOROVOD_SIZE"] == "4");
  }
}

TEST_CASE("a job's name has 16 digits") {
  CHECK(job_name(0xab) == "00000000000000ab");
  CHECK(job_name(~0ull) == "ffffffffffffffff");
}

TEST_CASE("the dry run's JSON keeps its order and holds no secret") {
  const std::string text = plan_as_json(*plan_slots({{"a", "", 1}}, {}), LaunchSettings());
  CHECK(text ==
        "{\"size\":1,\"hosts\":[{\"host\":\"a\",\"start\":\"ssh\",\"host_timeout\":45.0,\"lease\":"
        "45.0}],\"ranks\":[{"
        "\"rank\":0,\"host\":\"a\",\"local_rank\":0,\"local_size\":1,"
        "\"cross_rank\":0,\"cross_size\":1,\"env\":{\"HOROVOD_RANK\":\"0\",\"HOROVOD_SIZE\":\"1\","
        "\"HOROVOD_LOCAL_RANK\":\"0\",\"HOROVOD_LOCAL_SIZE\":\"1\",\"HOROVOD_CROSS_RANK\":\"0\","
        "\"HOROVOD_CROSS_SIZE\":\"1\",\"HOROVOD_HOSTNAME\":\"a\",\"RANK\":\"0\","
        "\"WORLD_SIZE\":\"1\",\"LOCAL_RANK\":\"0\",\"LOCAL_WORLD_SIZE\":\"1\",\"GROUP_RANK\":\"0\","
        "\"JAX_PROCESS_ID\":\"0\",\"JAX_NUM_PROCESSES\":\"1\",\"HOROVOD_GENERATION\":\"0\","
        "\"HOROVOD_LAUNCHER_VERSION\":\"" HVD_VERSION
        "\","
        "\"HOROVOD_START_TIMEOUT\":\"30\",\"PYTHONUNBUFFERED\":\"1\"}}]}\n");
  CHECK(nlohmann::json::parse(plan_as_json(two_hosts(), LaunchSettings()))["ranks"].size() == 4);
}

}  // namespace hvd::launcher
