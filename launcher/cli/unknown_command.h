// Recognises the first word of a command that means a command of horovodrun, and flags of horovodrun after the command:
// users of other launchers type them. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hvd::launcher {

// Returns "no command 'status'; did you mean horovodrun ps?", or empty for a word that resembles no command.
std::string explain_unknown_command(std::string_view word);

// Returns whether the word is a command of other tools, so that it hardly means a program of ranks.
bool is_command_elsewhere(std::string_view word);

// Does the same for a command of other tools that is also a common program, with the way to start that program.
std::string explain_program_elsewhere(std::string_view word);

// Returns a sentence about the first flag after the command that gives the number of ranks or hosts: "-np 2 comes after
// the command, ...". Empty if there is no such flag.
std::string explain_flag_behind(std::span<const std::string> command);

}  // namespace hvd::launcher
