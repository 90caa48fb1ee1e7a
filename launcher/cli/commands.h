// The commands of horovodrun itself, such as ps, which take the place of a program. A row of this table
// gives a command its help, its section of the man page and its place in the completions. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

struct Command {
  const char* name;
  const char* arguments;
  const char* help;      // a sentence
  const char* details;   // paragraphs of sentences, each ends with a newline; empty: there are none
  const char* examples;  // command lines, each ends with a newline
};

std::span<const Command> all_commands();
// Null if there is no such command.
const Command* find_command(std::string_view name);
// Turns `ps --help` into `--help ps`, and leaves everything else as it is.
std::vector<std::string> with_help_first(std::vector<std::string> arguments);

}  // namespace hvd::launcher
