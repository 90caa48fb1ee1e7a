// Expands host names with ranges, "n[01-16,20]" or "r[0-1]n[0-3]", as Slurm and pdsh write them. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd {

// The maximum number of names. A text that expands to more names is an error.
constexpr size_t kMaxNames = 1 << 17;

// Returns all names in the order of the ranges, the last range fastest. A text without brackets is
// one name. A number has the width of its range's first number. Brackets may be nested.
Result<std::vector<std::string>> expand_names(std::string_view pattern);

// Splits at commas outside brackets: "a,n[1,3],b" is {"a", "n[1,3]", "b"}.
std::vector<std::string_view> split_outside_brackets(std::string_view text);

}  // namespace hvd
