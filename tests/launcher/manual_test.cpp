#include "launcher/manual.h"

#include <doctest/doctest.h>

#include "base/settings.h"
#include "base/text.h"

namespace hvd::launcher {

TEST_CASE("the help shows every flag of the table as it may be written") {
  const std::string help = help_text();
  for (const Setting& setting : all_settings()) {
    if (setting.flags[0] == '\0') continue;
    const std::string flags = join(split(setting.flags, ','), ", ");
    CHECK_MESSAGE(help.find(flags) != std::string::npos, flags);
    CHECK_MESSAGE(help.find(setting.section) != std::string::npos, setting.section);
  }
  CHECK(help.find("-h, --help") != std::string::npos);
  CHECK(help.find(" --stall-check ") == std::string::npos);
  for (const std::string& line : split(help, '\n')) CHECK_MESSAGE(line.size() <= 110, line);
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
