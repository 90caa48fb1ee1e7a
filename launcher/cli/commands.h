// The commands of horovodrun itself, such as ps, which a user types in place of a program. A row of this table defines
// a command's help, its section of the man page and its place in the completions. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

struct Command {
  const char* name;
  const char* arguments;
  const char* help;      // one sentence
  const char* details;   // paragraphs of sentences, each ends with a newline; empty: no details
  const char* examples;  // command lines, each ends with a newline
};

std::span<const Command> all_commands();
// Returns null if the command does not exist.
const Command* find_command(std::string_view name);
// Turns `ps --help` into `--help ps`, and leaves other arguments unchanged.
std::vector<std::string> with_help_first(std::vector<std::string> arguments);

}  // namespace hvd::launcher
