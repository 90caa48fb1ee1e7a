// The commands of horovodrun itself. A user types them in place of a program: `horovodrun ps`. Each row of the table
// defines a command's help, its section of the man page and its completions. Pure.
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

// For an unknown command, returns "no command 'status'; did you mean horovodrun ps?". Returns an empty text if the word
// resembles no command.
std::string explain_unknown_command(std::string_view word);

// Returns whether the word is a command of other tools, and most likely not a program for ranks.
bool is_command_elsewhere(std::string_view word);

// Like explain_unknown_command(), for a command of other tools that is also a common program. The text also has the way
// to start that program.
std::string explain_program_elsewhere(std::string_view word);

// Returns a sentence about the first flag for the number of ranks or hosts that comes after the command: "-np 2 comes
// after the command, ...". Empty without such a flag.
std::string explain_flag_behind(std::span<const std::string> command);

}  // namespace hvd::launcher
