// The table of settings as people and shells read it. Pure.
#pragma once

#include <string>
#include <string_view>

namespace hvd::launcher {

// The common flags by topic, in lines of at most `width`, or of the longest flag.
std::string help_text(size_t width);
// All flags and variables of a topic of `all_topics()`.
std::string topic_help_text(std::string_view topic, size_t width);
// All topics.
std::string full_help_text(size_t width);
// For bash, zsh or fish.
std::string completion(std::string_view shell);
// As docs/settings.md, or as a page for man.
std::string manual(std::string_view format);

}  // namespace hvd::launcher
