// Converts the arguments and the environment of a program to the form that exec takes. Any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hvd {

using Environment = std::vector<std::pair<std::string, std::string>>;

// Returns `base` with values of `over` for the names that both have, followed by the other
// variables of `over`. If a name occurs twice in `over`, the last value wins.
Environment overlay(Environment base, const Environment& over);

// Returns "NAME=VALUE" for each variable.
std::vector<std::string> environment_strings(const Environment& environment);

// Returns pointers to the texts, which must outlive the pointers, and a final null. The
// pointers are not const because exec's parameters are not const; exec changes nothing.
std::vector<char*> pointers_to(const std::vector<std::string>& texts);

}  // namespace hvd
