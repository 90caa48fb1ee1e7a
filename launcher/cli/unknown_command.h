// Recognises the first word of a command that is meant as a command of horovodrun, and flags of horovodrun behind
// the command. Users of other launchers type them. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hvd::launcher {

// "no command 'status'; did you mean horovodrun ps?", or empty for a word that resembles no command.
std::string explain_unknown_command(std::string_view word);

// Whether the word names what other tools call a command, so that it is hardly meant as a program of ranks.
bool is_command_elsewhere(std::string_view word);

// The same for a word that names a command of other tools and a common program, with the way to start that one.
std::string explain_program_elsewhere(std::string_view word);

// A sentence about the first flag behind the command that says how many ranks to start, or where: "-np 2 comes
// after the command, ...". Empty if there is none.
std::string explain_flag_behind(std::span<const std::string> command);

}  // namespace hvd::launcher
