#include "launcher/cli/manual.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "base/settings.h"
#include "base/text.h"
#include "launcher/cli/flag_table.h"

namespace hvd::launcher {

TEST_CASE("the full help shows every flag of the table as it may be written") {
  const std::string help = full_help_text(100);
  for (const Setting& setting : all_settings()) {
    if (setting.flags[0] == '\0') continue;
    const std::string flags = join(split(setting.flags, ','), ", ");
    CHECK_MESSAGE(help.find(flags) != std::string::npos, flags);
    CHECK_MESSAGE(help.find(setting.section) != std::string::npos, setting.section);
  }
  CHECK(help.find("-h, --help") != std::string::npos);
  CHECK(help.find("Opposite: --stall-check.") != std::string::npos);
  CHECK(help.find("HOROVOD_NCCL_LIBRARY=FILE") != std::string::npos);
}

TEST_CASE("the full help shows a default only where there is one") {
  const std::string help = full_help_text(100);
  CHECK(help.find("[; ") == std::string::npos);
  CHECK(help.find("HOROVOD_RANK=N") != std::string::npos);
  CHECK(help.find("HOROVOD_FUSION_THRESHOLD=134217728]") != std::string::npos);
}

TEST_CASE("the help shows the common flags on 120 lines, and names the topics of all others") {
  for (const size_t width : {80, 100}) {
    const auto lines = split(help_text(width), '\n');
    CHECK(lines.size() <= 122);  // 121 lines, and the empty part after the last newline
    for (const std::string& line : lines) CHECK_MESSAGE(line.size() <= width, line);
  }
  const std::string help = join(split(help_text(100), '\n'), " ");
  CHECK(help.find("--gloo-timeout-seconds") == std::string::npos);
  std::string all;
  for (const std::string& topic : all_topics()) {
    CHECK_MESSAGE(help.find(topic) != std::string::npos, topic);
    CHECK_MESSAGE(!topic_help_text(topic, 100).empty(), topic);
    all += topic_help_text(topic, 100);
  }
  for (const Flag& flag : all_flags()) {
    if (flag.spellings.empty()) continue;  // a setting for programs that start the launcher
    CHECK_MESSAGE(all.find(flag.spellings.back()) != std::string::npos, flag.spellings.back());
  }
}

TEST_CASE("every value has a kind, and every help text is a sentence of at most two lines") {
  for (const Setting& setting : all_settings()) {
    const std::string value = setting.value;
    CHECK_MESSAGE((setting.type == SettingType::kFlag || !value.empty()), setting.key);
    for (const char* vague : {"TEXT", "INT", "FLOAT", "NUMBER", "STRING"}) {
      CHECK_MESSAGE(value != vague, setting.key);
    }
    const std::string help = setting.help;
    CHECK_MESSAGE(help.size() <= 132, help);
    CHECK_MESSAGE((help[0] >= 'A' && help[0] <= 'Z'), help);
    CHECK_MESSAGE((help.ends_with('.') || help.ends_with(':')), help);
  }
}

TEST_CASE("the help's lines are as long as the terminal is wide") {
  for (const size_t width : {60, 80, 132}) {
    size_t longest = 0;
    for (const std::string& line : split(full_help_text(width), '\n')) {
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
  CHECK(completion("zsh").find(":FORMAT:(text json)'") != std::string::npos);
  CHECK(completion("fish").find("-l log-format -x -a 'text json'") != std::string::npos);
  CHECK(completion("fish").find("-l hostfile -r") != std::string::npos);
}

TEST_CASE("no shell completes files where a number is wanted") {
  CHECK(completion("zsh").find("'*-np[Number of ranks, at most the hosts'\\'' slots.]:N: '") !=
        std::string::npos);
  CHECK(completion("zsh").find(":SECONDS:_files") == std::string::npos);
  CHECK(completion("zsh").find(":FILE:_files'") != std::string::npos);
  CHECK(completion("zsh").find("]:DIR:_files -/'") != std::string::npos);
  CHECK(completion("fish").find("-l timeout -x -d") != std::string::npos);
  CHECK(completion("fish").find("-l output-filename -r -d") != std::string::npos);
  CHECK(completion("bash").find("-np|--num-proc) COMPREPLY=()") != std::string::npos);
  CHECK(completion("bash").find("--output-filename)") == std::string::npos);
  for (const Flag& flag : all_flags()) {
    if (flag.spellings.empty() || flag.is_off) continue;
    if (flag.setting->type != SettingType::kInt && flag.setting->type != SettingType::kDouble)
      continue;
    const std::string word = flag.spellings.back();
    CHECK_MESSAGE(completion("bash").find(word + ") COMPREPLY=()") != std::string::npos, word);
    CHECK_MESSAGE(completion("fish").find("-l " + word.substr(2) + " -x") != std::string::npos,
                  word);
  }
}

TEST_CASE("zsh describes the commands") {
  CHECK(completion("zsh").find("'ps:List your running jobs and their ranks.'") !=
        std::string::npos);
  CHECK(completion("zsh").find("_describe command _horovodrun_commands") != std::string::npos);
}

TEST_CASE("the full help has all that the short one has: defaults and commands") {
  const std::string help = join(split(full_help_text(1000), '\n'), " ");
  for (const char* text :
       {"[1]", "Restarts of a failed job (3 if elastic). [0]", "they end. [kill]",
        "[30; HOROVOD_START_TIMEOUT]", "json objects. [text]", "ps [-a] [-w] [--json] [NAME]",
        "attach [NAME]"}) {
    CHECK_MESSAGE(help.find(text) != std::string::npos, text);
  }
  // The help names the variable of a setting without a flag only once.
  CHECK(help.find("[HOROVOD_AGENT_DIR]") == std::string::npos);
  CHECK(help.find("HOROVOD_AGENT_DIR=DIR") != std::string::npos);
}

TEST_CASE(
    "the help says in which units a flag and its variable count, and which flags have no effect") {
  const std::string help = manual("man");
  CHECK(help.find("in MiB (in the variable, bytes)") != std::string::npos);
  CHECK(help.find("HOROVOD_FUSION_THRESHOLD=134217728]") != std::string::npos);
  for (const char* key :
       {"disable_cache", "thread_affinity", "mpi_threads_disable", "hierarchical_allgather"}) {
    CHECK_MESSAGE(std::string(setting(key).help).starts_with("No effect"), key);
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

TEST_CASE("a flag of programs that start the launcher is accepted, and no list names it") {
  const auto flags = all_flags();
  CHECK(std::ranges::any_of(flags, [](const Flag& flag) {
    return std::ranges::find(flag.aliases, "--store-fd") != flag.aliases.end();
  }));
  for (const std::string& text :
       {full_help_text(100), manual("markdown"), manual("man"), manual("environment"),
        completion("bash"), completion("zsh"), completion("fish")}) {
    CHECK(text.find("store-fd") == std::string::npos);
    CHECK(text.find("store\\-fd") == std::string::npos);
    CHECK(text.find("store_fd") == std::string::npos);
  }
}

}  // namespace hvd::launcher
