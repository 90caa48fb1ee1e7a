// Expands host names with ranges, "n[01-16,20]" or "r[0-1]n[0-3]", as Slurm and pdsh write them. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd {

// More names than that come from one text only by mistake.
constexpr size_t kMaxNames = 1 << 17;

// All names, in the order of the ranges, the last one fastest; a text without brackets is itself.
// A number keeps the width of its range's beginning. Brackets may hold brackets.
Result<std::vector<std::string>> expand_names(std::string_view pattern);

// "a,n[1,3],b" is {"a", "n[1,3]", "b"}: commas within brackets separate nothing.
std::vector<std::string_view> split_outside_brackets(std::string_view text);

}  // namespace hvd
