#include <doctest/doctest.h>

#include <vector>

#include "launcher/cli/commands.h"

namespace hvd::launcher {

TEST_CASE("commands of other tools are answered with ours") {
  CHECK(explain_unknown_command("status") == "no command 'status'; did you mean horovodrun ps?");
  CHECK(explain_unknown_command("htop") == "no command 'htop'; did you mean horovodrun top?");
  CHECK(explain_unknown_command("output") == "no command 'output'; did you mean horovodrun logs?");
  CHECK(explain_unknown_command("cancel") == "no command 'cancel'; did you mean horovodrun stop?");
  CHECK(explain_unknown_command("version") ==
        "no command 'version'; did you mean horovodrun --version?");
  CHECK(explain_unknown_command("check-build") ==
        "no command 'check-build'; did you mean horovodrun --check-build?");
  for (const char* word : {"status", "output", "cancel", "version", "check-build"})
    CHECK_MESSAGE(is_command_elsewhere(word), word);
}

TEST_CASE("misspelt commands are named") {
  CHECK(explain_unknown_command("pss") == "no command 'pss'; did you mean horovodrun ps?");
  CHECK(explain_unknown_command("stak") == "no command 'stak'; did you mean horovodrun stack?");
  CHECK(explain_unknown_command("attahc") ==
        "no command 'attahc'; did you mean horovodrun attach?");
  CHECK(explain_unknown_command("sotp") == "no command 'sotp'; did you mean horovodrun stop?");
  CHECK(explain_unknown_command("rezise") ==
        "no command 'rezise'; did you mean horovodrun resize?");
}

TEST_CASE("a program whose name is a command of other tools is named with the way to start it") {
  CHECK(explain_program_elsewhere("kill") ==
        "no command 'kill'; did you mean horovodrun stop? -np N before it runs the program of that "
        "name");
  for (const char* word : {"status", "hostname", "stop", "sotp"})
    CHECK_MESSAGE(explain_program_elsewhere(word).empty(), word);
}

TEST_CASE("programs resemble no command") {
  for (const char* word : {"python3", "true", "hostname", "sh", "bash", "env", "nvidia-smi", "w",
                           "./status", "train.py", "id", ""}) {
    CHECK_MESSAGE(explain_unknown_command(word).empty(), word);
  }
  // An allocation's hosts may have these programs.
  for (const char* word : {"ls", "kill", "tail", "info"}) {
    CHECK_MESSAGE(!is_command_elsewhere(word), word);
  }
  for (const Command& command : all_commands()) CHECK(!is_command_elsewhere(command.name));
}

TEST_CASE("a flag behind the command is named with its value and its place") {
  const auto explain = [](std::vector<std::string> words) { return explain_flag_behind(words); };
  CHECK(explain({"python3", "train.py", "-np", "2"}) ==
        "-np 2 comes after the command, which gets it; write it before: horovodrun -np 2 "
        "python3 ...");
  CHECK(explain({"train.py", "--num-proc=4"}).starts_with("--num-proc=4 comes after"));
  CHECK(explain({"train.py", "-H", "a:2,b:2"}).starts_with("-H a:2,b:2 comes after"));
  CHECK(explain({"train.py", "--nproc_per_node", "2"}).starts_with("--nproc_per_node 2 comes"));
  CHECK(explain({"train.py", "-np"}).starts_with("-np comes after"));
  CHECK(explain({"train.py", "--epochs", "2", "--verbose"}).empty());
  CHECK(explain({"-np", "2"}).empty());
  CHECK(explain({}).empty());
}

}  // namespace hvd::launcher
