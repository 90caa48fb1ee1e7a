#include "launcher/options.h"

#include <doctest/doctest.h>

#include <cstdlib>

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
    CHECK(options_of(words).settings.integer("num_proc") == 2);
  }
  for (const Words& words : {Words{"-Ha:1", "x"}, Words{"-H", "a:1", "x"}, Words{"-H=a:1", "x"},
                             Words{"--hosts=a:1", "x"}}) {
    CHECK(options_of(words).settings.text("hosts") == "a:1");
  }
  CHECK(options_of({"-np", "1", "-p22", "x"}).settings.integer("ssh_port") == 22);
  CHECK(options_of({"-hostfile", "f", "x"}).settings.text("hostfile") == "f");
  CHECK(options_of({"--hostfile", "f", "x"}).settings.text("hostfile") == "f");
  CHECK(options_of({"-np", "1", "-i", "k", "x"}).settings.text("ssh_identity_file") == "k");
  CHECK(options_of({"-cb"}).settings.flag("check_build"));
  CHECK(options_of({"--check-build", "--verbose"}).settings.flag("verbose"));
  CHECK(options_of({"-v"}).settings.flag("version"));
  CHECK(options_of({"-h"}).help);
}

TEST_CASE("a flag given twice has its last value") {
  CHECK(options_of({"-np", "2", "-np", "3", "x"}).settings.integer("num_proc") == 3);
}

TEST_CASE("from the first word that is no flag on, all is the command, untouched") {
  CHECK(options_of({"-np", "2", "python", "-np", "3", "--help", "--"}).command ==
        Words{"python", "-np", "3", "--help", "--"});
  CHECK(options_of({"-np", "2", "--", "-odd", "--"}).command == Words{"-odd", "--"});
  CHECK(options_of({"-np", "2", "x", "", "a b"}).command == Words{"x", "", "a b"});
}

TEST_CASE("an argument wins over the environment, which wins over the default") {
  CHECK(options_of({"-np", "1", "x"}).settings.number("start_timeout") == 30);
  ::setenv("HOROVOD_START_TIMEOUT", "7", 1);
  CHECK(options_of({"-np", "1", "x"}).settings.number("start_timeout") == 7);
  CHECK(options_of({"-np", "1", "--start-timeout", "9", "x"}).settings.number("start_timeout") ==
        9);
  ::unsetenv("HOROVOD_START_TIMEOUT");
}

TEST_CASE("a mistake on the command line gets one sentence") {
  CHECK(error_of({"-np", "2", "--verbos", "x"}) ==
        "unknown flag --verbos; did you mean --verbose?");
  CHECK(error_of({"-n", "2", "x"}) == "unknown flag -n; did you mean -np?");
  CHECK(error_of({"-np2", "x"}) == "unknown flag -np2; did you mean -np?");
  CHECK(error_of({"-np", "2", "--out", "d", "x"}) ==
        "unknown flag --out; did you mean --output-filename?");
  CHECK(error_of({"-np", "2", "--frobnicate=1", "x"}) ==
        "unknown flag --frobnicate; see horovodrun --help");
  CHECK(error_of({"-np"}) == "-np needs a value");
  CHECK(error_of({"-np", "-H", "a:1"}) == "-np needs a value");
  CHECK(error_of({"-np=", "x"}) == "-np needs a value");
  CHECK(error_of({"--verbose=1", "x"}) == "--verbose takes no value");
  CHECK(error_of({"-np", "two", "x"}) == "-np: 'two' is not a whole number");
  CHECK(error_of({"-np", "0", "x"}) ==
        "-np 0 is out of range; it lies between 1 and 16777216");
  CHECK(error_of({"-np", "-1", "x"}) ==
        "-np -1 is out of range; it lies between 1 and 16777216");
  CHECK(error_of({"-np", "1", "-p", "70000", "x"}) ==
        "-p 70000 is out of range; it lies between 1 and 65535");
  CHECK(error_of({"-np", "2", "-H", "a:2", "-hostfile", "f", "x"}) ==
        "-H and -hostfile both say where to run; give one of them");
  CHECK(error_of({"x"}) ==
        "say how many ranks to start, with -np N, or where, with -H or -hostfile");
  CHECK(error_of({"-np", "2"}) ==
        "the command is missing; it follows the flags, as in: horovodrun -np 4 python3 train.py");
}

TEST_CASE("a flag is taken back by its opposite, the last one wins") {
  const auto disabled = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"-np", "1"});
    words.push_back("x");
    const auto options = parse_options(words);
    REQUIRE(options.ok());
    return options->settings.flag("stall_check_disable");
  };
  CHECK(disabled({"--no-stall-check"}));
  CHECK_FALSE(disabled({"--no-stall-check", "--stall-check"}));
  CHECK(disabled({"--stall-check", "--no-stall-check"}));
  CHECK(help_text().find(" --stall-check ") == std::string::npos);
}

TEST_CASE("the help shows every flag of the table as it may be written") {
  const std::string help = help_text();
  for (const Setting& setting : all_settings()) {
    std::string flags = setting.flags;
    if (flags.empty()) continue;
    if (const size_t comma = flags.find(','); comma != std::string::npos) {
      flags.replace(comma, 1, ", ");
    }
    CHECK_MESSAGE(help.find(flags) != std::string::npos, flags);
    CHECK_MESSAGE(help.find(setting.section) != std::string::npos, setting.section);
  }
  CHECK(help.find("-h, --help") != std::string::npos);
}

}  // namespace hvd::launcher
