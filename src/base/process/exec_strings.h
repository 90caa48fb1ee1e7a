// The arguments and the environment of a program, and their form for exec. Any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hvd {

using Environment = std::vector<std::pair<std::string, std::string>>;

// Returns `base` with the values of `over` for the names that both have, and the other variables of `over` at the end.
// A name that occurs twice in `over` has its last value.
Environment overlay(Environment base, const Environment& over);

// "NAME=VALUE" for each variable.
std::vector<std::string> environment_strings(const Environment& environment);

// Pointers to the texts, which must outlive them, and a null at the end. exec takes pointers to what it could change,
// and changes nothing.
std::vector<char*> pointers_to(const std::vector<std::string>& texts);

}  // namespace hvd
