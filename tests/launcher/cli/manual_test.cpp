#include "launcher/cli/manual.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "base/settings.h"
#include "base/text.h"

namespace hvd::launcher {

TEST_CASE("the help shows every flag of the table as it may be written") {
  const std::string help = help_text(100);
  for (const Setting& setting : all_settings()) {
    if (setting.flags[0] == '\0') continue;
    const std::string flags = join(split(setting.flags, ','), ", ");
    CHECK_MESSAGE(help.find(flags) != std::string::npos, flags);
    CHECK_MESSAGE(help.find(setting.section) != std::string::npos, setting.section);
  }
  CHECK(help.find("-h, --help") != std::string::npos);
  CHECK(help.find(" --stall-check ") == std::string::npos);
}

TEST_CASE("the help's lines are as long as the terminal is wide") {
  for (const size_t width : {60, 80, 132}) {
    size_t longest = 0;
    for (const std::string& line : split(help_text(width), '\n')) {
      CHECK_MESSAGE(line.size() <= width, line);
      longest = std::max(longest, line.size());
    }
    CHECK(longest > width - 5);
  }
  CHECK(help_text(1).find("--hosts") != std::string::npos);
}

TEST_CASE("every shell completes values that are known") {
  CHECK(completion("bash").find("--log-format) COMPREPLY=($(compgen -W 'text json'") !=
        std::string::npos);
  CHECK(completion("zsh").find(":TEXT:(text json)'") != std::string::npos);
  CHECK(completion("fish").find("-l log-format -x -a 'text json'") != std::string::npos);
  CHECK(completion("fish").find("-l hostfile -r") != std::string::npos);
}

TEST_CASE(
    "the help says in which units a flag and its variable count, and which flags have no effect") {
  const std::string help = manual("man");
  CHECK(help.find("in MiB (in the variable, bytes)") != std::string::npos);
  CHECK(help.find("[128; HOROVOD_FUSION_THRESHOLD=134217728]") != std::string::npos);
  for (const char* key :
       {"disable_cache", "thread_affinity", "mpi_threads_disable", "hierarchical_allgather"}) {
    CHECK_MESSAGE(std::string(setting(key).help).starts_with("no effect"), key);
  }
  CHECK(manual("markdown").find("128 (variable: 134217728)") != std::string::npos);
}

TEST_CASE("every shell's completion and every manual has every flag") {
  for (const Setting& setting : all_settings()) {
    if (setting.flags[0] == '\0') continue;
    const std::string flag = split(setting.flags, ',').back();
    for (const char* shell : {"bash", "zsh"}) {
      CHECK_MESSAGE(completion(shell).find(flag) != std::string::npos, shell << " " << flag);
    }
    CHECK_MESSAGE(completion("fish").find("-l " + flag.substr(2)) != std::string::npos, flag);
    CHECK_MESSAGE(manual("markdown").find(flag) != std::string::npos, flag);
  }
  CHECK(manual("man").find("\\-\\-hostfile") != std::string::npos);
}

}  // namespace hvd::launcher
