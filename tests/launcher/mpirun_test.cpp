#include <doctest/doctest.h>

#include <cstdlib>

#include "base/text.h"
#include "launcher/cli/options.h"
#include "launcher/mpirun/arguments.h"
#include "launcher/mpirun/start.h"
#include "launcher/spawn/local_program.h"

namespace hvd::launcher {
namespace {

using Words = std::vector<std::string>;

Options options_of(const Words& words) {
  auto options = parse_options(words);
  REQUIRE_MESSAGE(options.ok(), options.status().message());
  return *std::move(options);
}

SlotPlan plan_of(const Options& options) {
  auto plan = plan_slots(parse_hosts(options.settings.table().text("hosts")).value(),
                         static_cast<int>(options.settings.table().integer("num_proc")));
  REQUIRE_MESSAGE(plan.ok(), plan.status().message());
  return *std::move(plan);
}

Result<Words> built(MpiFlavour flavour, const Words& words) {
  const Options options = options_of(words);
  return mpirun_arguments(flavour, options, plan_of(options), {"LANG", "PATH"});
}

// Joins the words with |, so that each word is visible.
std::string line_of(MpiFlavour flavour, Words more, const std::string& hosts = "a:2,b:2") {
  Words words = {"--mpi", "-np", "4", "-H", hosts};
  words.insert(words.end(), more.begin(), more.end());
  words.insert(words.end(), {"python", "a b.py"});
  const auto line = built(flavour, words);
  REQUIRE_MESSAGE(line.ok(), line.status().message());
  return join(*line, "|");
}

std::string error_of(MpiFlavour flavour, Words more, const std::string& hosts = "a:2,b:2") {
  Words words = {"--mpi", "-np", "4", "-H", hosts};
  words.insert(words.end(), more.begin(), more.end());
  words.push_back("x");
  return built(flavour, words).status().message();
}

constexpr auto kOpenMpi = MpiFlavour::kOpenMpi;
constexpr auto kSpectrum = MpiFlavour::kSpectrum;
constexpr auto kMpich = MpiFlavour::kMpich;
constexpr auto kIntel = MpiFlavour::kIntel;

std::string many_hosts(int hosts) {
  Words names;
  for (int i = 0; i < hosts; ++i) names.push_back(cat("n", i, ":1"));
  return join(names, ",");
}

}  // namespace

TEST_CASE("mpirun --version names the implementation") {
  CHECK(flavour_of("mpirun (Open MPI) 4.1.4\n\nReport bugs to ...") == kOpenMpi);
  CHECK(flavour_of("OpenRTE 3.1\n") == kOpenMpi);
  CHECK(flavour_of("mpirun (IBM Spectrum MPI) 10.3.1.2rtm0\n") == kSpectrum);
  CHECK(flavour_of("HYDRA build details:\n    Version: 4.0.2\n") == kMpich);
  CHECK(flavour_of("Intel(R) MPI Library for Linux* OS, Version 2021.8\n") == kIntel);
  CHECK_FALSE(flavour_of("mpirun 1.0 of somebody\n"));
}

TEST_CASE("the plain line of each") {
  CHECK(line_of(kOpenMpi, {}) ==
        "mpirun|--allow-run-as-root|--tag-output|-np|4|-H|a:2,b:2|-bind-to|none|-map-by|slot|-mca|"
        "pml|ob1|-mca|btl|^openib|-x|LANG|-x|PATH|python|a b.py");
  CHECK(line_of(kSpectrum, {}) ==
        "mpirun|--allow-run-as-root|--tag-output|-np|4|-H|a:2,b:2|-bind-to|socket|-map-by|socket|"
        "-rank-by|core|-x|LANG|-x|PATH|python|a b.py");
  CHECK(line_of(kMpich, {}) ==
        "mpirun|-l|-np|4|-ppn|2|-hosts|a,b|-bind-to|none|-map-by|slot|python|a b.py");
  CHECK(line_of(kIntel, {}) == "mpirun|-l|-np|4|-ppn|2|-hosts|a,b|python|a b.py");
}

TEST_CASE("in a job of Slurm, ranks do not take the places of mpirun's daemons") {
  ::setenv("SLURM_JOB_ID", "7", 1);
  for (const MpiFlavour flavour : {kOpenMpi, kMpich})
    CHECK(line_of(flavour, {}).ends_with("|env|-u|SLURM_NTASKS|-u|SLURM_PROCID|python|a b.py"));
  ::unsetenv("SLURM_JOB_ID");
}

TEST_CASE("the line of each with all that it takes") {
  const Words of_all = {
      "-p",  "22",     "-i", "/k",    "--network-interfaces",  "eth0", "--output-filename",
      "out", "--wdir", "/w", "--tcp", "--mpi-args=-v -x 'A B'"};
  Words of_open_mpi = of_all;
  of_open_mpi.insert(of_open_mpi.end(), {"--binding-args=-bind-to core", "-prefix-timestamp"});
  CHECK(
      line_of(kOpenMpi, of_open_mpi) ==
      "mpirun|--allow-run-as-root|--tag-output|-np|4|-H|a:2,b:2|-bind-to|core|-mca|pml|ob1|-mca|"
      "btl|^openib|--timestamp-output|-mca|plm_rsh_args|-p 22 -i /k|-mca|btl_tcp_if_include|eth0|"
      "-x|NCCL_SOCKET_IFNAME=eth0|--output-filename|out|-wdir|/w|-x|LANG|-x|PATH|-v|-x|A B|python|"
      "a b.py");
  CHECK(line_of(kSpectrum, of_open_mpi) ==
        "mpirun|--allow-run-as-root|--tag-output|-np|4|-H|a:2,b:2|-bind-to|core|-tcp|"
        "--timestamp-output|-mca|plm_rsh_args|-p 22 -i /k|-mca|btl_tcp_if_include|eth0|-x|"
        "NCCL_SOCKET_IFNAME=eth0|--output-filename|out|-wdir|/w|-x|LANG|-x|PATH|-v|-x|A B|python|"
        "a b.py");
  CHECK(line_of(kMpich, of_all) ==
        "mpirun|-l|-np|4|-ppn|2|-hosts|a,b|-bind-to|none|-map-by|slot|-bootstrap=ssh|"
        "-bootstrap-exec-args|-p 22 -i /k|-iface|eth0|-genv|NCCL_SOCKET_IFNAME=eth0|"
        "-outfile-pattern|out|-wdir|/w|-v|-x|A B|python|a b.py");
  CHECK(line_of(kIntel, of_all) ==
        "mpirun|-l|-np|4|-ppn|2|-hosts|a,b|-bootstrap=ssh|-bootstrap-exec-args|-p 22 -i /k|-iface|"
        "eth0|-genv|NCCL_SOCKET_IFNAME=eth0|-outfile-pattern|out|-wdir|/w|-v|-x|A B|python|a b.py");
}

TEST_CASE("to many hosts Open MPI and Spectrum MPI connect all at once") {
  const auto of = [](MpiFlavour flavour, int hosts) {
    return join(*built(flavour, {"--mpi", "-np", cat(hosts), "-H", many_hosts(hosts), "x"}), "|");
  };
  constexpr char kAtOnce[] = "|-mca|plm_rsh_no_tree_spawn|true|-mca|plm_rsh_num_concurrent|64|";
  CHECK(of(kOpenMpi, 64).find(kAtOnce) != std::string::npos);
  CHECK(of(kSpectrum, 64).find(kAtOnce) != std::string::npos);
  CHECK(of(kOpenMpi, 63).find("plm_rsh") == std::string::npos);
  CHECK(of(kMpich, 64).find("plm_rsh") == std::string::npos);
}

TEST_CASE("interfaces that are excluded, and networks, are for those who understand them") {
  CHECK(line_of(kOpenMpi, {"--network-interfaces", "^docker0"}).find("btl_tcp") ==
        std::string::npos);
  const std::string network = line_of(kOpenMpi, {"--network-interfaces", "10.0.0.0/8,eth0"});
  CHECK(network.find("|btl_tcp_if_include|10.0.0.0/8,eth0|-x|LANG") != std::string::npos);
  CHECK(line_of(kMpich, {"--network-interfaces", "10.0.0.0/8"}).find("iface") == std::string::npos);
}

TEST_CASE("hosts with different numbers of slots") {
  CHECK(line_of(kMpich, {}, "a:3,b:2").find("|-np|4|-hosts|a:3,b:2|-bind-to|") !=
        std::string::npos);
  CHECK(error_of(kIntel, {}, "a:3,b:2") ==
        "Intel MPI's mpirun needs the same number of slots on each host, and a has 3, b 2; give -H "
        "the same "
        "number for all");
}

TEST_CASE("a flag without a counterpart in an mpirun is refused in one sentence") {
  CHECK(error_of(kMpich, {"--binding-args=-bind-to core"}) ==
        "--binding-args is for Open MPI and Spectrum MPI, and mpirun is MPICH's; write what binds "
        "into --mpi-args");
  CHECK(error_of(kIntel, {"-prefix-timestamp"}) ==
        "Intel MPI's mpirun puts no times before lines; leave out --prefix-output-with-timestamp");
  CHECK(error_of(kMpich, {"--network-interfaces", "eth0,eth1"}) ==
        "MPICH's mpirun takes one interface, and --network-interfaces names eth0,eth1; name one");
  CHECK(error_of(kOpenMpi, {}, "u@a:4") ==
        "mpirun takes no user in u@a; write -H a and name the user in ~/.ssh/config");
  CHECK(error_of(kOpenMpi, {}, "[fd00::1]:4") ==
        "mpirun takes no address with colons, such as fd00::1; give the host's name to -H");
  CHECK(error_of(kOpenMpi, {"--timeout", "9"}) ==
        "--timeout is for ranks that this launcher's own agents start; omit it or --mpi");
  CHECK(error_of(kOpenMpi, {"--bind-to", "core"}) ==
        "--bind-to is for ranks that this launcher's own agents start; omit it or --mpi");
  CHECK(line_of(kOpenMpi, {"--bind-to", "none", "--map-by", "slot"}) == line_of(kOpenMpi, {}));
  CHECK(error_of(kOpenMpi, {"--mpi-args=-x 'A"}) == "--mpi-args: a quote ' is not closed in -x 'A");
}

TEST_CASE("one flag says who starts the ranks") {
  const auto error = [](const Words& words) { return parse_options(words).status().message(); };
  CHECK(error({"--mpi", "--gloo", "-np", "1", "x"}) ==
        "--gloo, --mpi and --jsrun each say who starts the ranks; give one of them");
  CHECK_FALSE(is_started_by_mpi(options_of({"--mpi-args=-v", "-np", "1", "x"})));
  CHECK(is_started_by_mpi(options_of({"--jsrun", "-np", "1", "x"})));
  CHECK_FALSE(is_started_by_mpi(options_of({"--gloo", "-np", "1", "x"})));
}

TEST_CASE("no secret and nothing of one machine is exported") {
  CHECK(exported_names({{"PATH", "/bin"},
                        {"_HOROVOD_SECRET_KEY", "1"},
                        {"OLDPWD", "/"},
                        {"HOROVOD_JOB_SECRET", "2"},
                        {"BASH_FUNC_f%%", "() { :; }"},
                        {"A", ""},
                        {"MY_CUDA_VISIBLE_DEVICES", "1"},
                        {"A", "2"}}) == Words{"A", "PATH"});
}

TEST_CASE("words are what a shell takes them for") {
  CHECK(*shell_words("") == Words{});
  CHECK(*shell_words("  a\t'b c'd \"e \\\"f\\\" $g\" \\  ''\n") ==
        Words{"a", "b cd", "e \"f\" $g", " ", ""});
  CHECK_FALSE(shell_words("a \"b").ok());
}

TEST_CASE("jsrun's line and its file of places") {
  const LsfNode node{42, 4, 6};
  const Options options = options_of({"--jsrun", "-np", "3", "-H", "a:2,b:2", "python", "x y"});
  CHECK(*rankfile(plan_of(options), node) ==
        "overlapping_rs: allow\ncpu_index_using: logical\n\n"
        "rank: 0: { hostname: a; cpu: {0-27} ; gpu: * ; mem: * }\n"
        "rank: 1: { hostname: a; cpu: {28-55} ; gpu: * ; mem: * }\n\n"
        "rank: 2: { hostname: b; cpu: {0-27} ; gpu: * ; mem: * }\n");
  CHECK(join(*jsrun_arguments(options, 2, "/tmp/f"), "|") == "jsrun|--erf_input|/tmp/f|python|x y");
  const Options all = options_of({"--jsrun", "--binding-args=-n 4 -c 2", "--output-filename", "o",
                                  "--tcp", "--mpi-args=-async -gpu", "x"});
  CHECK(join(*jsrun_arguments(all, 64, ""), "|") ==
        "jsrun|-n|4|-c|2|--stdio_stderr|o|--stdio_stdout|o|--smpiargs|-tcp -mca "
        "plm_rsh_no_tree_spawn true -mca plm_rsh_num_concurrent 64 -async -gpu|x");
  const Options many = options_of({"--jsrun", "-np", "7", "-H", "a:7", "x"});
  CHECK(rankfile(plan_of(many), node).status().message() ==
        "host a has 6 GPUs for 7 ranks; give it fewer slots in -H, or give --binding-args");
}

TEST_CASE("the resources of a node of LSF") {
  constexpr char kAllocation[] = "---\nallocation_id: 7\nisolated_cores: 1\n...\n";
  constexpr char kAttributes[] =
      "TOTAL_RECORDS: 1\nRecord_1:\n  discovered_cores:  44\n  discovered_gpus: 6\n"
      "  discovered_sockets: 2\n";
  constexpr char kLscpu[] = "CPU(s): 176\nThread(s) per core:  4\n";
  const auto node = parse_lsf_node(kAllocation, kAttributes, kLscpu);
  REQUIRE_MESSAGE(node.ok(), node.status().message());
  CHECK(node->cores == 42);
  CHECK(node->threads_per_core == 4);
  CHECK(node->gpus == 6);
  CHECK(parse_lsf_node(kAllocation, "", kLscpu).status().message() ==
        "csm_node_attributes_query prints no number of discovered_cores, which --jsrun needs; give "
        "--binding-args");
}

TEST_CASE("a program's words, its end, and what is said of none") {
  const auto soon = Deadline::after_seconds(200);
  CHECK(*output_of({"/bin/sh", "-c", "echo a; echo b >&2; exit 3"}, soon) == "a\nb\n");
  CHECK(output_of({"no-such-program"}, soon).status().code() == Code::kNotFound);
  CHECK(output_of({"/bin/sleep", "100"}, Deadline::after_seconds(0.1)).status().message() ==
        "/bin/sleep 100 did not answer in time");
  CHECK(*run_program({"/bin/sh", "-c", "exit $A"}, {{"A", "7"}}) == 7);
  CHECK(*run_program({"/bin/sh", "-c", "kill -9 $$"}, {}) == 137);
}

}  // namespace hvd::launcher
