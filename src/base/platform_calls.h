// The system calls in which threads wait, by name. Not every architecture has all of them.
#pragma once

#include <string_view>

namespace hvd {

// Empty for others.
std::string_view waiting_call(long number);

}  // namespace hvd
