// Recognises a program name that means a command of horovodrun, and flags of horovodrun after the command. Users of
// other launchers make these mistakes. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hvd::launcher {

// Returns "no command 'status'; did you mean horovodrun ps?"; empty for a word that resembles no command.
std::string explain_unknown_command(std::string_view word);

// Returns whether the word is a command of other tools, so that it is hardly the name of a program for ranks.
bool is_command_elsewhere(std::string_view word);

// Like explain_unknown_command(), for a command of other tools that is also a common program, with the way to start it.
std::string explain_program_elsewhere(std::string_view word);

// Returns a sentence about the first flag after the command that gives the number of ranks or hosts: "-np 2 comes after
// the command, ...". Empty if there is no such flag.
std::string explain_flag_behind(std::span<const std::string> command);

}  // namespace hvd::launcher
