// Formats the table of settings as --help, shell completion, man pages and docs/settings.md. Pure.
#pragma once

#include <string>
#include <string_view>

namespace hvd::launcher {

// Returns the text for a call without arguments: eight lines with three commands.
std::string first_screen();
// Returns --help: the common flags by topic, in lines of at most `width` columns, or of the longest flag.
std::string help_text(size_t width);
// Returns --help TOPIC: all flags and variables of a topic in all_topics(), or the help of a command in
// all_commands().
std::string topic_help_text(std::string_view topic, size_t width);
// Returns --help-all: the flags and variables of all topics.
std::string full_help_text(size_t width);
// Returns the completion script for `shell`: bash, zsh or fish.
std::string completion(std::string_view shell);
// Returns the manual in `format`: docs/settings.md, or the man page of the flags or of the variables.
std::string manual(std::string_view format);

}  // namespace hvd::launcher
