#include "launcher/allocation/allocation.h"

#include <doctest/doctest.h>

#include <map>

namespace hvd::launcher {
namespace {

using Texts = std::map<std::string, std::string, std::less<>>;

Result<std::optional<Allocation>> find(const Texts& variables, const Texts& files = {},
                                       std::optional<int> slots_per_host = {},
                                       const std::vector<SlurmNode>& nodes = {},
                                       bool has_num_proc = false, const std::string& device = "") {
  AllocationSources sources;
  sources.device = device;
  sources.slots_per_host = slots_per_host;
  sources.slurm_nodes = [&] { return nodes; };
  sources.sge_hosts = [](const std::string& job) {
    return job == "7" ? Result<std::vector<Host>>(std::vector<Host>{{"a", "", 2}})
                      : Result<std::vector<Host>>(unavailable("qstat printed nothing"));
  };
  sources.has_num_proc = has_num_proc;
  sources.variable = [&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return {};
    return found->second;
  };
  sources.variables = [&] {
    return std::vector<std::pair<std::string, std::string>>(variables.begin(), variables.end());
  };
  sources.file = [&](const std::string& path) -> std::optional<Result<std::string>> {
    const auto found = files.find(path);
    if (found == files.end()) return {};
    return Result<std::string>(found->second);
  };
  return find_allocation(sources);
}

Allocation allocation(const Texts& variables, const Texts& files = {},
                      std::optional<int> slots_per_host = {}) {
  auto found = find(variables, files, slots_per_host);
  REQUIRE_MESSAGE(found.ok(), found.status().message());
  REQUIRE(found->has_value());
  return **found;
}

std::string error_of(const Texts& variables, const Texts& files = {}) {
  return find(variables, files).status().message();
}

}  // namespace

TEST_CASE("without a scheduler there is no allocation") {
  // SGE jobs with one slot have no host file.
  CHECK_FALSE(find({{"PATH", "/bin"}, {"JOB_ID", "3"}})->has_value());
}

TEST_CASE("a number of a job without its list of hosts is a warning") {
  const auto warning_of = [](const Texts& variables) {
    const Allocation found = allocation(variables);
    CHECK(found.hosts.empty());
    REQUIRE(found.warnings.size() == 1);
    return found.warnings[0];
  };
  CHECK(warning_of({{"PBS_JOBID", "4"}}) ==
        "PBS job 4: PBS_NODEFILE is not set, so all ranks run on this machine; name hosts with -H");
  CHECK(warning_of({{"JOB_ID", "4"}, {"SGE_ROOT", "/s"}}) ==
        "SGE job 4: PE_HOSTFILE is not set, and qstat printed nothing, so all ranks run on this "
        "machine; name hosts with -H");
  CHECK(warning_of({{"LSB_JOBID", "4"}}).starts_with("LSF job 4: LSB_DJOB_HOSTFILE is not set, "));
  AllocationSources sources;
  sources.variable = [](std::string_view name) -> std::optional<std::string> {
    if (name == "SLURM_JOB_ID") return "10";
    return {};
  };
  sources.slurm_nodes = [] { return Result<std::vector<SlurmNode>>(unavailable("no answer")); };
  const auto unknown = find_allocation(sources);
  REQUIRE((unknown.ok() && *unknown));
  CHECK((*unknown)->hosts.empty());
  CHECK((*unknown)->warnings ==
        std::vector<std::string>{"Slurm job 10: SLURM_JOB_NODELIST is not set, and no answer, so "
                                 "all ranks run on this machine; name hosts with -H"});
}

TEST_CASE("a number of a job of Slurm is enough where scontrol knows its nodes") {
  const Texts job = {{"SLURM_JOB_ID", "10"}};
  const std::vector<SlurmNode> nodes = {{"a", "gpu:2", 2, -1, 8}, {"b", "", 0, -1, 4}};
  const auto hosts = [&](bool has_num_proc) {
    const auto found = find(job, {}, {}, nodes, has_num_proc);
    REQUIRE(found.ok());
    return (*found)->hosts;
  };
  CHECK(hosts(false)[0].slots == 2);
  CHECK(hosts(false)[1].slots == 1);
  CHECK(hosts(true)[0].max_slots == 8);
  CHECK(hosts(true)[1].max_slots == 4);
}

TEST_CASE("Slurm's hosts and tasks") {
  const Allocation found = allocation({{"SLURM_JOB_ID", "17"},
                                       {"SLURM_JOB_NODELIST", "a,n[01-02]"},
                                       {"SLURM_TASKS_PER_NODE", "4(x2),3"}});
  CHECK(found.source == "Slurm job 17");
  CHECK(found.hosts == std::vector<Host>{{"a", "", 4}, {"n01", "", 4}, {"n02", "", 3}});
}

TEST_CASE("Slurm without a number of tasks, and in its old spelling") {
  CHECK(allocation({{"SLURM_NODELIST", "r[0-1]n[2-3]"}}, {}, 8).hosts ==
        std::vector<Host>{{"r0n2", "", 8}, {"r0n3", "", 8}, {"r1n2", "", 8}, {"r1n3", "", 8}});
}

TEST_CASE("Slurm's nodes have a slot for each GPU, else for each task's cores") {
  const Texts job = {
      {"SLURM_JOB_ID", "17"}, {"SLURM_JOB_NODELIST", "a,b"}, {"SLURM_TASKS_PER_NODE", "1(x2)"},
      {"SLURM_NTASKS", "2"},  {"SLURM_CPUS_PER_TASK", "4"},  {"SLURM_JOB_CPUS_PER_NODE", "32(x2)"}};
  const auto slots = [&](const std::string& device) {
    const auto found = find(job, {}, {}, {{"a", "gpu:2", 2}, {"b", "", 0}}, false, device);
    REQUIRE(found.ok());
    CHECK((*found)->counts_devices);
    return std::vector<int>{(*found)->hosts[0].slots, (*found)->hosts[1].slots};
  };
  CHECK(slots("gpu") == std::vector<int>{2, 8});
  CHECK(slots("auto") == std::vector<int>{2, 8});
  CHECK(slots("cpu") == std::vector<int>{8, 8});
  CHECK_FALSE(find(job)->value().counts_devices);
}

TEST_CASE("Slurm's heterogeneous jobs have all their groups' hosts") {
  CHECK(allocation({{"SLURM_HET_SIZE", "2"},
                    {"SLURM_JOB_NODELIST", "a"},
                    {"SLURM_TASKS_PER_NODE", "1"},
                    {"SLURM_JOB_NODELIST_HET_GROUP_0", "a"},
                    {"SLURM_TASKS_PER_NODE_HET_GROUP_0", "1"},
                    {"SLURM_JOB_NODELIST_HET_GROUP_1", "g[1-2]"},
                    {"SLURM_TASKS_PER_NODE_HET_GROUP_1", "8(x2)"}})
            .hosts == std::vector<Host>{{"a", "", 1}, {"g1", "", 8}, {"g2", "", 8}});
}

TEST_CASE(
    "without a number of tasks, a node has a rank for each GPU, and -np may use what it has") {
  const std::vector<SlurmNode> nodes = {{"a", "gpu:4", 4, -1}, {"b", "", 0, -1}};
  Texts variables = {{"SLURM_JOB_NODELIST", "a,b"},
                     {"SLURM_TASKS_PER_NODE", "1(x2)"},
                     {"SLURM_JOB_CPUS_PER_NODE", "8(x2)"},
                     {"SLURM_CPUS_PER_TASK", "4"}};
  const auto hosts = [&](bool has_num_proc = false, std::optional<int> slots_per_host = {}) {
    const auto found = find(variables, {}, slots_per_host, nodes, has_num_proc);
    REQUIRE(found.ok());
    std::vector<std::pair<int, int>> slots;
    for (const Host& host : (*found)->hosts) slots.emplace_back(host.slots, host.max_slots);
    return slots;
  };
  using Slots = std::vector<std::pair<int, int>>;
  CHECK(hosts() == Slots{{4, 0}, {1, 2}});
  CHECK(hosts(true) == Slots{{1, 4}, {1, 2}});
  CHECK(hosts(false, 3) == Slots{{3, 0}, {3, 0}});
  CHECK((*find(variables, {}, {}, nodes))->hosts[0].offered == "1 task, 4 GPUs, CPUs for 2 tasks");
  variables["SLURM_NTASKS"] = "2";  // the user requests two tasks
  CHECK(hosts() == Slots{{1, 4}, {1, 2}});
  variables["SLURM_STEP_ID"] = "0";  // the step's own number
  CHECK(hosts() == Slots{{4, 0}, {1, 2}});
  variables["SLURM_NTASKS_PER_NODE"] = "1";  // srun --ntasks-per-node=1 --pty bash
  CHECK(hosts() == Slots{{4, 0}, {1, 2}});
  variables["SLURM_NTASKS_PER_NODE"] = "2";
  variables["SLURM_TASKS_PER_NODE"] = "2(x2)";
  CHECK(hosts() == Slots{{2, 4}, {2, 0}});
}

TEST_CASE("a node in two components of a heterogeneous job is refused") {
  CHECK(error_of({{"SLURM_HET_SIZE", "2"},
                  {"SLURM_JOB_NODELIST_HET_GROUP_0", "a"},
                  {"SLURM_JOB_NODELIST_HET_GROUP_1", "a"}})
            .starts_with("node a is in two components of the heterogeneous job; "));
}

TEST_CASE("within a step of Slurm's that has one task, the job's own number counts") {
  Texts variables = {{"SLURM_JOB_NODELIST", "n[1-2]"},
                     {"SLURM_TASKS_PER_NODE", "1"},
                     {"SLURM_STEP_NUM_TASKS", "1"},
                     {"SLURM_PROCID", "0"},
                     {"SLURM_NTASKS_PER_NODE", "4"}};
  CHECK(allocation(variables).hosts == std::vector<Host>{{"n1", "", 4}, {"n2", "", 4}});
  variables.erase("SLURM_NTASKS_PER_NODE");
  CHECK(error_of(variables) ==
        "SLURM_TASKS_PER_NODE=1 names 1 hosts, and the job's list of hosts has 2: start "
        "horovodrun outside of srun, or name hosts with -H");
  const std::vector<SlurmNode> nodes = {{"n1", "gpu:2", 2}, {"n2", "gpu:3", 3}};
  variables["SLURM_STEP_ID"] = "0";
  CHECK((*find(variables, {}, {}, nodes))->hosts[1].slots == 3);
  CHECK(allocation(variables, {}, 5).hosts[1].slots == 5);
  variables["SLURM_STEP_NUM_TASKS"] = "8";
  CHECK(error_of(variables) ==
        "srun has started horovodrun 8 times; start it once, by srun -n1 or without srun");
}

TEST_CASE("a launcher of which another has started several is refused, one of one is not") {
  CHECK(error_of({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}) ==
        "mpirun has started horovodrun 2 times; start it once, by horovodrun --mpi or without "
        "mpirun");
  CHECK(error_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}) ==
        "mpirun has started horovodrun 3 times; start it once, by horovodrun --mpi or without "
        "mpirun");
  for (const Texts& variables :
       {Texts{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
        Texts{{"PMI_SIZE", "2"}}, Texts{{"SLURM_STEP_NUM_TASKS", "2"}}}) {
    const auto found = find(variables);
    REQUIRE(found.ok());
    CHECK_FALSE(found->has_value());
  }
}

TEST_CASE("in the shell of srun --pty, which has the step's first task, the launcher is one") {
  Texts variables{{"SLURM_JOB_NODELIST", "n1"},
                  {"SLURM_TASKS_PER_NODE", "4"},
                  {"SLURM_STEP_NUM_TASKS", "4"},
                  {"SLURM_PROCID", "0"},
                  {"SLURM_PTY_PORT", "41331"}};
  const auto found = find(variables);
  REQUIRE(found.ok());
  REQUIRE(found->has_value());
  CHECK((*found)->hosts.front().slots == 4);
  variables["PMI_RANK"] = "0";
  variables["PMI_SIZE"] = "4";
  CHECK(find(variables).ok());
  variables["MPI_LOCALRANKID"] = "0";
  CHECK(error_of(variables) ==
        "mpirun has started horovodrun 4 times; start it once, by horovodrun --mpi or without "
        "mpirun");
  variables["SLURM_PROCID"] = "1";
  CHECK(error_of(variables) ==
        "srun has started horovodrun 4 times; start it once, by srun -n1 or without srun");
}

TEST_CASE("an arbitrary distribution, whose tasks of each node Slurm does not say, is refused") {
  Texts variables = {
      {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_NTASKS", "3"}, {"SLURM_DISTRIBUTION", "arbitrary"}};
  CHECK(
      error_of(variables) ==
      "SLURM_TASKS_PER_NODE is not set, and the job has 3 tasks on 2 nodes, which sbatch "
      "--distribution=arbitrary places: name hosts and slots with -H, or write --slots-per-host N");
  CHECK(allocation(variables, {}, 5).hosts[1].slots == 5);
  CHECK((*find(variables, {}, {}, {}, true))->hosts[1].slots == 1);
  variables["SLURM_NTASKS"] = "2";
  CHECK(allocation(variables).hosts == std::vector<Host>{{"n1", "", 1}, {"n2", "", 1}});
}

TEST_CASE("an error names the wrong variable of Slurm") {
  CHECK(error_of({{"SLURM_JOB_NODELIST", "n[1-"}}) == "SLURM_JOB_NODELIST: the ']' is missing");
  CHECK(error_of({{"SLURM_JOB_NODELIST", "n1"}, {"SLURM_TASKS_PER_NODE", "4(2)"}}) ==
        "SLURM_TASKS_PER_NODE: '4(2)' is not a number of slots, which is 1 or more");
  CHECK(error_of({{"SLURM_JOB_NODELIST", "n1"}, {"SLURM_TASKS_PER_NODE", "4(x"}}) ==
        "SLURM_TASKS_PER_NODE: '4(x' is not a count such as 4(x2)");
  CHECK(error_of({{"SLURM_JOB_NODELIST", "-n"}}) ==
        "SLURM_JOB_NODELIST: '-n' is not a host's name");
  CHECK(error_of({{"SLURM_HET_SIZE", "x"}}) == "SLURM_HET_SIZE=x is not a number of groups");
}

TEST_CASE("repeated counts") {
  CHECK(*parse_repeated_counts("4(x2),3") == std::vector<int>{4, 4, 3});
  CHECK(*parse_repeated_counts("1") == std::vector<int>{1});
  CHECK_FALSE(parse_repeated_counts("").ok());
  CHECK_FALSE(parse_repeated_counts("4(x0)").ok());
  CHECK_FALSE(parse_repeated_counts("4(x999999999)").ok());
}

TEST_CASE("LSF's hosts, by number or one by one") {
  CHECK(allocation({{"LSB_JOBID", "5"}, {"LSB_MCPU_HOSTS", "a 4 b 2 "}}).hosts ==
        std::vector<Host>{{"a", "", 4}, {"b", "", 2}});
  CHECK(allocation({{"LSB_JOBID", "5"}, {"LSB_HOSTS", "a a b"}}).hosts ==
        std::vector<Host>{{"a", "", 2}, {"b", "", 1}});
  CHECK(
      allocation({{"LSB_JOBID", "5"}, {"LSB_DJOB_HOSTFILE", "/f"}}, {{"/f", "a\nb\na\n"}}).hosts ==
      std::vector<Host>{{"a", "", 2}, {"b", "", 1}});
  CHECK(error_of({{"LSB_JOBID", "5"}, {"LSB_MCPU_HOSTS", "a 4 b"}}) ==
        "LSB_MCPU_HOSTS: a host has no number of slots");
}

TEST_CASE("LSF's batch host is none of the job's where CSM gives out the hosts") {
  CHECK(allocation({{"LSB_JOBID", "5"},
                    {"CSM_ALLOCATION_ID", "9"},
                    {"LSB_MCPU_HOSTS", "batch1 1 c1 42 c2 42"}})
            .hosts == std::vector<Host>{{"c1", "", 42}, {"c2", "", 42}});
}

TEST_CASE("PBS's file has a host as often as it has slots") {
  const Allocation found = allocation({{"PBS_JOBID", "8.srv"}, {"PBS_NODEFILE", "/f"}},
                                      {{"/f", "a.org\na.org\r\nb.org\n\n"}});
  CHECK(found.hosts == std::vector<Host>{{"a.org", "", 2}, {"b.org", "", 1}});
  CHECK(found.source == "PBS job 8.srv");
  CHECK(error_of({{"PBS_NODEFILE", "/g"}}) == "PBS_NODEFILE: there is no file /g");
  CHECK(error_of({{"PBS_NODEFILE", "/g"}}, {{"/g", "a\nb/x\n"}}) ==
        "PBS_NODEFILE: /g, line 2: 'b/x' is not a host's name");
}

TEST_CASE("SGE's file has the number of slots behind the host") {
  CHECK(allocation({{"PE_HOSTFILE", "/f"}},
                   {{"/f", "a.org 4 all.q@a.org UNDEFINED\nb 2 all.q@b <NULL>\n"}})
            .hosts == std::vector<Host>{{"a.org", "", 4}, {"b", "", 2}});
  CHECK(error_of({{"PE_HOSTFILE", "/f"}}, {{"/f", "a\n"}}) ==
        "PE_HOSTFILE: /f, line 1: the number of slots is missing");
}

TEST_CASE("qstat knows the hosts of a job of SGE whose number is all that the variables say") {
  CHECK(allocation({{"JOB_ID", "7"}, {"SGE_ROOT", "/s"}}).hosts == std::vector<Host>{{"a", "", 2}});
  // No message for a job on one host, or if another program has set JOB_ID.
  CHECK_FALSE(find({{"JOB_ID", "7"}, {"SGE_ROOT", "/s"}, {"NHOSTS", "1"}})->has_value());
  CHECK_FALSE(find({{"JOB_ID", "nightly-7"}, {"SGE_ROOT", "/s"}})->has_value());
}

TEST_CASE("OAR's file has a line for each slot, and Cobalt's one for each host") {
  CHECK(allocation({{"OAR_JOB_ID", "7"}, {"OAR_NODEFILE", "/f"}}, {{"/f", "a\na\nb\n"}}).hosts ==
        std::vector<Host>{{"a", "", 2}, {"b", "", 1}});
  const Texts cobalt = {{"COBALT_JOBID", "7"}, {"COBALT_NODEFILE", "/f"}};
  CHECK(allocation(cobalt, {{"/f", "a\nb\n"}}).hosts ==
        std::vector<Host>{{"a", "", 1}, {"b", "", 1}});
}

TEST_CASE("the Kubernetes MPI Operator's file, also beside no variable at all") {
  CHECK(allocation({}, {{kOperatorHostfile, "job-worker-0.job slots=2\njob-worker-1.job:2\n"}})
            .hosts == std::vector<Host>{{"job-worker-0.job", "", 2}, {"job-worker-1.job", "", 2}});
  CHECK(allocation({}, {{kOperatorHostfile, "a slots=2 rack=1\n"}}).warnings ==
        std::vector<std::string>{"hostfile /etc/mpi/hostfile, line 1: the word 'rack' is unknown "
                                 "and has no effect"});
}

TEST_CASE("among Volcano's tasks, the task of the launcher's pod has no ranks") {
  Texts variables = {{"VC_MASTER_HOSTS", "digits-master-0.digits"},
                     {"VC_MASTER_NUM", "1"},
                     {"VC_WORKER_HOSTS", "digits-worker-0.digits,digits-worker-1.digits"},
                     {"VC_TASK_INDEX", "0"},
                     {"HOSTNAME", "digits-master-0"}};
  const Allocation found = allocation(variables, {}, 2);
  CHECK(found.source == "Volcano");
  CHECK(found.hosts ==
        std::vector<Host>{{"digits-worker-0.digits", "", 2}, {"digits-worker-1.digits", "", 2}});
  variables["HOSTNAME"] = "elsewhere";
  CHECK(allocation(variables).hosts.size() == 3);
}

TEST_CASE("in a Volcano job with one task, pod 0 starts the job on all pods") {
  Texts variables = {{"VC_GPU_TASK_HOSTS", "j-gpu-task-0.j, j-gpu-task-1.j"},
                     {"HOSTNAME", "j-gpu-task-0"}};
  CHECK(allocation(variables).hosts ==
        std::vector<Host>{{"j-gpu-task-0.j", "", 1}, {"j-gpu-task-1.j", "", 1}});
  variables["VC_TASK_INDEX"] = "0";
  CHECK(allocation(variables).hosts.size() == 2);
  variables["VC_TASK_INDEX"] = "1";
  variables["HOSTNAME"] = "j-gpu-task-1";
  CHECK(
      error_of(variables) ==
      "VC_TASK_INDEX=1: each pod of this Volcano task starts horovodrun; start it in the pod with "
      "index 0 alone, and sshd in the others, or name hosts with -H");
}

TEST_CASE("Volcano's variables without a host, or with a bad one") {
  CHECK_FALSE(find({{"VC_HOSTS", "a"}, {"VC_WORKER_NUM", "2"}, {"VC__HOSTS", "a"}})->has_value());
  CHECK(error_of({{"VC_WORKER_HOSTS", ""}}) == "Volcano has no host; name hosts with -H");
  CHECK(error_of({{"VC_WORKER_HOSTS", "a,-b"}}) == "VC_WORKER_HOSTS: '-b' is not a host's name");
}

TEST_CASE("a host's slots add up, and there is a bound") {
  CHECK(allocation({{"LSB_JOBID", "5"}, {"LSB_MCPU_HOSTS", "a 4 b 2 a 1"}}).hosts ==
        std::vector<Host>{{"a", "", 5}, {"b", "", 2}});
  CHECK(error_of({{"LSB_JOBID", "5"}, {"LSB_MCPU_HOSTS", "a 65536 a 1"}}) ==
        "LSB_MCPU_HOSTS: host a has more than 65536 slots in all");
}

}  // namespace hvd::launcher
