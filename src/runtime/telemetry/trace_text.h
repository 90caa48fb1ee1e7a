// Formats parts of a trace's text. Plain data without I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::runtime {

void put_number(std::string& text, int64_t number);
// Appends microseconds with three decimal places.
void put_time(std::string& text, double micros);
// Returns, for example, "[2, 3]"; truncates a long shape.
std::string shape_text(const std::vector<int64_t>& shape);
std::string upper_case(std::string_view text);

}  // namespace hvd::runtime
