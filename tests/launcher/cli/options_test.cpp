#include "launcher/cli/options.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>

#include "base/text.h"
#include "launcher/cli/flag_table.h"

namespace hvd::launcher {
namespace {

using Words = std::vector<std::string>;

Options options_of(const Words& words) {
  auto options = parse_options(words);
  REQUIRE_MESSAGE(options.ok(), options.status().message());
  return *std::move(options);
}
std::string error_of(const Words& words) { return parse_options(words).status().message(); }

}  // namespace

TEST_CASE("every way to write a flag with its value is understood") {
  for (const Words& words : {Words{"-np", "2", "x"}, Words{"-np=2", "x"},
                             Words{"--num-proc", "2", "x"}, Words{"--num-proc=2", "x"}}) {
    CHECK(options_of(words).settings.table().integer("num_proc") == 2);
  }
  for (const Words& words : {Words{"-Ha:1", "x"}, Words{"-H", "a:1", "x"}, Words{"-H=a:1", "x"},
                             Words{"--hosts=a:1", "x"}}) {
    CHECK(options_of(words).settings.table().text("hosts") == "a:1");
  }
  CHECK(options_of({"-np", "1", "-p22", "x"}).settings.table().integer("ssh_port") == 22);
  CHECK(options_of({"-hostfile", "f", "x"}).settings.table().text("hostfile") == "f");
  CHECK(options_of({"--hostfile", "f", "x"}).settings.table().text("hostfile") == "f");
  CHECK(options_of({"-np", "1", "-i", "k", "x"}).settings.table().text("ssh_identity_file") == "k");
  CHECK(options_of({"-cb"}).settings.table().flag("check_build"));
  CHECK(options_of({"--check-build", "--verbose"}).settings.table().flag("verbose"));
  CHECK(options_of({"-v"}).settings.table().flag("version"));
  CHECK(options_of({"-h"}).settings.table().flag("help"));
}

TEST_CASE(
    "a flag may be shortened to a beginning that one flag of the original has, as its parser "
    "allows") {
  const Options options =
      options_of({"--verb", "--output-file", "d", "-np", "1", "--fusion=3", "x"});
  CHECK(options.settings.table().flag("verbose"));
  CHECK(options.settings.table().text("output_filename") == "d");
  CHECK(options.settings.table().integer("fusion_threshold") == 3 << 20);
  CHECK(options.command == Words{"x"});
  CHECK(options.shortened == Words{"--verb is read as --verbose",
                                   "--output-file is read as --output-filename",
                                   "--fusion=3 is read as --fusion-threshold-mb"});
  CHECK(options_of({"-np", "1", "--no-stall", "x"}).settings.table().flag("stall_check_disable"));
  CHECK(!options_of({"-np", "1", "--no-log", "x"}).settings.table().flag("log_hide_time"));
  CHECK(error_of({"-np", "1", "--start-time", "soon", "x"}).starts_with("--start-timeout: "));
  // Several flags of the original begin with this word.
  CHECK(error_of({"-np", "1", "--network", "lo", "x"}).starts_with("unknown flag --network; "));
  // The exact name of another launcher's flag wins.
  CHECK(error_of({"--num-p", "1", "--nics", "lo", "x"}).starts_with("--nics: write "));
}

TEST_CASE("each beginning of the original's flags is a flag that the parser has") {
  std::set<std::string> beginnings;
  const std::vector<Flag> flags = all_flags();
  const auto setting_of = [&](const std::string& name) -> const Setting* {
    for (const Flag& flag : flags) {
      if (std::ranges::count(flag.spellings, name) + std::ranges::count(flag.aliases, name) > 0)
        return flag.setting;
    }
    return nullptr;
  };
  for (const Flag& flag : flags) {
    for (const std::string& spelling : flag.spellings) {
      for (size_t length = 3; length < spelling.size(); ++length) {
        const std::string beginning = spelling.substr(0, length);
        const std::string whole = flag_of_beginning(beginning);
        if (whole.empty()) continue;
        CHECK_MESSAGE(setting_of(whole) != nullptr, whole);
        // "--slots" is an exact name and means the same setting.
        const Setting* const exact = setting_of(beginning);
        CHECK_MESSAGE((exact == nullptr || exact == setting_of(whole)), beginning);
        CHECK_MESSAGE(find_foreign_flag(beginning) == nullptr, beginning);
        beginnings.insert(beginning);
      }
    }
  }
  CHECK(beginnings.size() == 584);
}

TEST_CASE("a flag given twice has its last value") {
  CHECK(options_of({"-np", "2", "-np", "3", "x"}).settings.table().integer("num_proc") == 3);
}

TEST_CASE("a flag given twice, whose last value would drop hosts or files, is refused or joined") {
  CHECK(error_of({"-H", "a:1", "--hosts", "b:1", "-H", "a:1", "x"}) ==
        "--hosts is given 2 times; write --hosts a:1,b:1");
  CHECK(error_of({"-np", "1", "--remote-init", "one", "--remote-init", "two", "x"}) ==
        "--remote-init is given 2 times; write --remote-init 'one; two'");
  CHECK(error_of({"--hostfile", "f", "--hostfile", "g", "x"}) ==
        "--hostfile is given 2 times; write it once, with one FILE");
  CHECK(options_of({"-H", "a:1", "-H", "a:1", "x"}).settings.table().text("hosts") == "a:1");
  CHECK(options_of({"-np", "1", "--stage", "a", "--stage=b", "x"}).settings.table().text("stage") ==
        "a\nb");
}

TEST_CASE("a second program of mpirun is no argument of the first") {
  CHECK(error_of({"-np", "1", "a", ":", "-np", "1", "b"}).starts_with("': -np ...' is a second"));
  CHECK(error_of({"-H", "a:1", "a", "1", ":", "-x", "A=1", "b"}).starts_with("': -x ...'"));
  CHECK(options_of({"-np", "1", "expr", "ab", ":", "a.*"}).command ==
        Words{"expr", "ab", ":", "a.*"});
  CHECK(options_of({"-np", "1", "--", "a", ":", "-n"}).command == Words{"a", ":", "-n"});
}

TEST_CASE("from the first word that is no flag on, all is the command, untouched") {
  CHECK(options_of({"-np", "2", "python", "-np", "3", "--help", "--"}).command ==
        Words{"python", "-np", "3", "--help", "--"});
  CHECK(options_of({"-np", "2", "--", "-odd", "--"}).command == Words{"-odd", "--"});
  CHECK(options_of({"-np", "2", "x", "", "a b"}).command == Words{"x", "", "a b"});
}

TEST_CASE("an argument wins over the environment, which wins over the default") {
  CHECK(options_of({"-np", "1", "x"}).settings.table().number("start_timeout") == 30);
  ::setenv("HOROVOD_START_TIMEOUT", "7", 1);
  CHECK(options_of({"-np", "1", "x"}).settings.table().number("start_timeout") == 7);
  CHECK(options_of({"-np", "1", "--start-timeout", "9", "x"})
            .settings.table()
            .number("start_timeout") == 9);
  ::unsetenv("HOROVOD_START_TIMEOUT");
}

TEST_CASE("a value with a space may begin with a hyphen") {
  const Options options =
      options_of({"--mpi-args", "-x A", "--binding-args", "--bind-to core", "-np", "1", "x"});
  CHECK(options.settings.table().text("mpi_args") == "-x A");
  CHECK(options.settings.table().text("binding_args") == "--bind-to core");
  CHECK(error_of({"--mpi-args", "-v", "-np", "1", "x"}) == "--mpi-args needs a value");
}

TEST_CASE("a mistake on the command line gets one sentence") {
  CHECK(error_of({"-np", "2", "--verbsoe", "x"}) ==
        "unknown flag --verbsoe; did you mean --verbose?");
  CHECK(error_of({"-np2", "x"}) == "unknown flag -np2; did you mean -np?");
  CHECK(error_of({"-np", "2", "--o", "d", "x"}) == "unknown flag --o; did you mean --omp-default?");
  CHECK(error_of({"-np", "2", "--frobnicate=1", "x"}) ==
        "unknown flag --frobnicate; see horovodrun --help");
  CHECK(error_of({"-V"}) == "unknown flag -V; did you mean --version?");
  CHECK(error_of({"-?"}) == "unknown flag -?; did you mean --help?");
  CHECK(error_of({"-P", "22", "x"}) == "unknown flag -P; did you mean --ssh-port?");
  CHECK(error_of({"-q", "x"})
            .starts_with("-q: horovodrun prints little of its own; write --only-rank"));
  CHECK(error_of({"--launch-agent", "ssh {hots}", "x"}) ==
        "--launch-agent knows no {hots}; there are {host}, {user} and {port}");
  CHECK(error_of({"--launch-agent", "ssh -p {port} {user}@{host} ${shell}", "-np", "1", "x"})
            .empty());
  CHECK(error_of({"--stage-dir", "~/scratch", "-np", "1", "x"}) ==
        "--stage-dir ~/scratch is not an absolute path; name a directory of the hosts, such as "
        "/scratch");
  CHECK(error_of({"--stage-dir", "/scratch", "-np", "1", "x"}).empty());
  CHECK(error_of({"-np"}) == "-np needs a value");
  CHECK(error_of({"-np", "-H", "a:1"}) == "-np needs a value");
  CHECK(error_of({"-np=", "x"}) == "-np needs a value");
  CHECK(error_of({"--verbose=1", "x"}) == "--verbose takes no value");
  CHECK(error_of({"-np", "two", "x"}) == "-np: 'two' is not a whole number");
  CHECK(error_of({"-np", "0", "x"}) == "-np 0 is out of range; it lies between 1 and 16777216");
  CHECK(error_of({"-np", "-1", "x"}) == "-np -1 is out of range; it lies between 1 and 16777216");
  CHECK(error_of({"-np", "1", "-p", "70000", "x"}) ==
        "-p 70000 is out of range; it lies between 1 and 65535");
  CHECK(error_of({"-np", "2", "-H", "a:2", "-hostfile", "f", "x"}) ==
        "-H and -hostfile both name the hosts; use only one of them");
  CHECK(error_of({"-np", "1", "--tls-cert", "f", "x"}) ==
        "--tls-cert and --tls-key need each other: the certificates and their key");
  CHECK(error_of({"-np", "1", "--tls-cert", "f", "--tls-key", "k", "x"}) ==
        "--tls-cert is for hosts that join, with --listen [HOST]:PORT");
  CHECK(error_of({"-np", "1", "--insecure-plaintext", "x"}) ==
        "--insecure-plaintext is for hosts that join, with --listen [HOST]:PORT");
  CHECK(error_of({"-np", "1", "--listen", ":1", "--token-file", "f", "--tls-cert", "f", "--tls-key",
                  "k", "--insecure-plaintext", "x"}) ==
        "--insecure-plaintext and --tls-cert exclude each other: omit one");
  CHECK(
      error_of({"-np", "1", "--encrypt", "--insecure-compat", "x"}) ==
      "--encrypt and --insecure-compat exclude each other: workers of the original Horovod do not "
      "encrypt; omit one");
  CHECK(error_of({"-np", "2"}) ==
        "the command is missing; it follows the flags, as in: horovodrun -np 4 python3 train.py");
}

TEST_CASE("a flag is taken back by its opposite, the last one wins") {
  const auto disabled = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"-np", "1"});
    words.push_back("x");
    const auto options = parse_options(words);
    REQUIRE(options.ok());
    return options->settings.table().flag("stall_check_disable");
  };
  CHECK(disabled({"--no-stall-check"}));
  CHECK_FALSE(disabled({"--no-stall-check", "--stall-check"}));
  CHECK(disabled({"--stall-check", "--no-stall-check"}));
}

TEST_CASE("flags of other launchers that mean the same are understood") {
  for (const char* flag : {"-n", "--n", "--np"}) {
    CHECK(options_of({flag, "3", "x"}).settings.table().integer("num_proc") == 3);
  }
  for (const char* flag :
       {"--nproc-per-node", "--nproc_per_node", "-ppn", "--npernode", "--slots"}) {
    CHECK(options_of({flag, "3", "x"}).settings.table().integer("slots_per_host") == 3);
  }
  CHECK(options_of({"--nproc_per_node=4", "--nnodes=2", "x"}).settings.table().integer("nnodes") ==
        2);
  CHECK(options_of({"-host", "a,b", "x"}).settings.table().text("hosts") == "a,b");
  CHECK(options_of({"-machinefile", "f", "x"}).settings.table().text("hostfile") == "f");
}

TEST_CASE("flags that say what is so anyway are taken with their values") {
  CHECK(options_of({"-np", "1", "-bind-to", "none", "--map-by", "slot", "--allow-run-as-root",
                    "--gloo", "--tag-output", "x", "--bind-to", "core"})
            .command == Words{"x", "--bind-to", "core"});
  CHECK(options_of({"-np", "1", "--bind-to=none", "x"}).command == Words{"x"});
}

TEST_CASE("flags that mean nothing here are answered with ours") {
  CHECK(error_of({"-np", "1", "-genv", "A", "1", "x"}) == "-genv: write -x NAME=VALUE");
  CHECK(error_of({"--bind-to", "board", "x"}).starts_with("--bind-to board: write none, auto, "));
  CHECK(error_of({"--rdzv-backend=c10d", "x"}) ==
        "--rdzv-backend: every host is started by this launcher, and ranks meet through it; leave "
        "the flag out and name the hosts with -H");
}

TEST_CASE("flags of torchrun, DeepSpeed, mpirun and srun are answered with ours") {
  const auto answer = [](const Words& words) {
    Words all = words;
    all.insert(all.end(), {"-np", "1", "x"});
    return error_of(all);
  };
  CHECK(answer({"--tee", "3"}) ==
        "--tee: output is always printed, with the rank; --output-filename DIR also writes it to "
        "files");
  for (const char* flag : {"--log-dir", "--log_dir", "--redirects", "-r", "-t"}) {
    CHECK_MESSAGE(answer({flag, "3"}).find("--output-filename DIR") != std::string::npos, flag);
  }
  CHECK(answer({"--log-dir=logs"}).starts_with("--log-dir: write --output-filename DIR"));
  CHECK(answer({"--role", "trainer"}).find("leave the flag out") != std::string::npos);
  CHECK(answer({"--include", "a:0,1@b"}).starts_with("--include: write -H HOST:SLOTS"));
  CHECK(answer({"--exclude=b"}).starts_with("--exclude: write -H HOST:SLOTS"));
  CHECK(answer({"--num_gpus", "4"}).starts_with("--num_gpus: write -np N"));
  CHECK(answer({"--gpus-per-node=4"}).find("-H HOST:SLOTS") != std::string::npos);
  CHECK(answer({"--ntasks", "2"}) == "--ntasks: write -np N");
  CHECK(answer({"--cwd", "/tmp"}) == "--cwd: write --wdir DIR");
  CHECK(answer({"--gpus=2"}).find("-H HOST:SLOTS") != std::string::npos);
  CHECK(answer({"--nics", "eth0"}).find("--network-interfaces") != std::string::npos);
  CHECK(answer({"-e", "A=1"}).starts_with("-e: write -x NAME=VALUE"));
  CHECK(answer({"--rankfile", "f"}).find("--hostfile FILE") != std::string::npos);
  CHECK(answer({"--image", "i"}).find("--launch-agent") != std::string::npos);
  for (const char* flag : {"--debug", "-u"}) {
    CHECK_MESSAGE(answer({flag}).find("did you mean") == std::string::npos, flag);
  }
  CHECK(answer({"--log", "INFO"}) == "--log: write --log-level LEVEL");
  CHECK(answer({"--display-map"}).find("--dry-run") != std::string::npos);
}

TEST_CASE("a number of slots may be a device") {
  for (const char* flag : {"--nproc-per-node", "--nproc_per_node", "--slots-per-host"}) {
    for (const char* device : {"gpu", "auto", "cpu", "GPU"}) {
      const Settings settings = options_of({flag, device, "x"}).settings.table();
      CHECK(settings.text("slots_by") == to_lower(device));
      CHECK_FALSE(settings.is_set("slots_per_host"));
    }
  }
  // If a flag is given twice, the last value counts.
  CHECK(options_of({"--slots", "gpu", "--slots", "2", "x"})
            .settings.table()
            .text("slots_by")
            .empty());
  CHECK(options_of({"--nproc-per-node=2", "--slots=gpu", "x"}).settings.table().text("slots_by") ==
        "gpu");
  CHECK(error_of({"--nproc-per-node", "tpu", "x"}) ==
        "--nproc-per-node: 'tpu' is not a whole number");
  CHECK(error_of({"-np", "2", "--host-discovery-script", "x", "--slots", "gpu", "x"})
            .find("let the script print HOST:SLOTS") != std::string::npos);
}

TEST_CASE("standard input goes to the ranks of a list") {
  for (const char* ranks : {"none", "all", "0", "1", "0,3-5", "NONE"}) {
    CHECK(options_of({"-np", "8", "--stdin", ranks, "x"}).settings.table().text("stdin") == ranks);
  }
  CHECK(error_of({"-np", "2", "--stdin", "some", "x"}) ==
        "--stdin some is not one of: none, all, or ranks such as 0,3-5");
  CHECK(error_of({"-np", "2", "--detach", "--stdin", "1", "x"}).starts_with("--stdin 1 needs a "));
  CHECK(options_of({"-np", "2", "--detach", "--stdin", "0", "x"}).settings.table().flag("detach"));
}

TEST_CASE("-h before a word that is no topic is not taken for help") {
  CHECK(error_of({"-h", "a:1,b:1", "python3", "train.py"}) ==
        "-h prints help, and 'a:1,b:1' is not one of its topics; write -H a:1,b:1 for hosts");
  CHECK(error_of({"-h", "a:4"}).find("write -H a:4 for hosts") != std::string::npos);
  CHECK(error_of({"-h", "node7", "true"}).find("write -H node7 for hosts") != std::string::npos);
  CHECK(options_of({"-h", "hosts"}).settings.table().flag("help"));
  CHECK(options_of({"-h", "ps"}).settings.table().flag("help"));
  CHECK(options_of({"-np", "2", "python3", "x.py", "-h"}).command.size() == 3);
  CHECK(options_of({"-h", "-np", "2", "python3", "train.py"}).settings.table().flag("help"));
  CHECK(options_of({"--help", "-H", "a:1", "python3", "x.py"}).settings.table().flag("help"));
}

TEST_CASE("a command of other tools is no program unless ranks or hosts are given") {
  for (const char* word : {"status", "output", "cancel", "version", "check-build"}) {
    CHECK_MESSAGE(error_of({word}).starts_with(cat("no command '", word, "'; ")), word);
    CHECK(options_of({"-np", "2", word}).command == Words{word});
    CHECK(options_of({"-H", "a:2", word}).command == Words{word});
    CHECK(options_of({"--", word}).command == Words{word});
  }
  CHECK(error_of({"--verbose", "status"}).starts_with("no command 'status'; "));
  CHECK(options_of({"ls"}).command == Words{"ls"});
  CHECK(options_of({"hostname"}).command == Words{"hostname"});
}

TEST_CASE("no flag is answered that is also understood") {
  for (const Flag& flag : all_flags()) {
    for (const auto& spellings : {flag.spellings, flag.aliases}) {
      for (const std::string& spelling : spellings) {
        CHECK_MESSAGE(find_foreign_flag(spelling) == nullptr, spelling);
      }
    }
  }
}

TEST_CASE("a flag may count in other units than its variable") {
  CHECK(options_of({"-np", "1", "--fusion-threshold-mb", "64", "x"})
            .settings.table()
            .integer("fusion_threshold") == 64 << 20);
  CHECK(error_of({"-np", "1", "--fusion-threshold-mb", "-1", "x"}) ==
        "--fusion-threshold-mb -1 is out of range; it lies between 0 and 1048576 MiB; "
        "HOROVOD_FUSION_THRESHOLD takes bytes");
  // Bytes, but the flag takes MiB.
  CHECK(error_of({"-np", "1", "--fusion-threshold-mb", "134217728", "x"}) ==
        "--fusion-threshold-mb 134217728 is out of range; it lies between 0 and 1048576 MiB; "
        "HOROVOD_FUSION_THRESHOLD takes bytes");
  ::setenv("HOROVOD_FUSION_THRESHOLD", "-5", 1);
  CHECK(error_of({"-np", "1", "x"}) ==
        "HOROVOD_FUSION_THRESHOLD -5 is out of range; it lies between 0 and 1099511627776 bytes; "
        "--fusion-threshold-mb takes MiB; unset it for the default 134217728");
  ::unsetenv("HOROVOD_FUSION_THRESHOLD");
  CHECK(error_of({"-np", "1", "--fusion-threshold-mb", "9223372036854775807", "x"}) ==
        "--fusion-threshold-mb: '9223372036854775807' is too large");
}

TEST_CASE("a flag wins over the config file, which wins over the environment") {
  const std::string path = "options_test.yaml";
  std::ofstream(path) << "params:\n  cycle_time_ms: 5\n  cache_capacity: 7\n";
  ::setenv("HOROVOD_CACHE_CAPACITY", "3", 1);
  ::setenv("HOROVOD_AUTOTUNE", "1", 1);
  const Settings settings =
      options_of({"-np", "1", "--cycle-time-ms", "2", "--config-file", path, "x"}).settings.table();
  ::unsetenv("HOROVOD_CACHE_CAPACITY");
  ::unsetenv("HOROVOD_AUTOTUNE");
  std::remove(path.c_str());
  CHECK(settings.number("cycle_time") == 2);
  CHECK(settings.integer("cache_capacity") == 7);
  CHECK(settings.flag("autotune"));
  CHECK(error_of({"--config-file", "/nonexistent/x.yaml", "x"}) ==
        "cannot read config file /nonexistent/x.yaml: No such file or directory");
}

TEST_CASE("a word that is none of a few is named with them") {
  CHECK(error_of({"--completion", "tcsh"}) == "--completion tcsh is not one of: bash, zsh, fish");
  CHECK(options_of({"-np", "1", "--log-level", "DEBUG", "x"}).settings.table().text("log_level") ==
        "DEBUG");
}

}  // namespace hvd::launcher
