// Pieces of text that a trace is made of. Values only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::runtime {

void put_number(std::string& text, int64_t number);
// Microseconds with three digits behind the point.
void put_time(std::string& text, double micros);
// "[2, 3]"; cut where it gets long.
std::string shape_text(const std::vector<int64_t>& shape);
std::string upper_case(std::string_view text);

}  // namespace hvd::runtime
