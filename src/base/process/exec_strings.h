// The arguments and the environment of a program, as exec takes them. Any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hvd {

// "NAME=VALUE" for each variable.
std::vector<std::string> environment_strings(
    const std::vector<std::pair<std::string, std::string>>& environment);

// Pointers to the texts, which must outlive them, and a null at the end. exec takes pointers to what it could change,
// and changes nothing.
std::vector<char*> pointers_to(const std::vector<std::string>& texts);

}  // namespace hvd
