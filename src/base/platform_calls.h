// Names the system calls in which threads wait. Some architectures lack some of the calls.
#pragma once

#include <string_view>

namespace hvd {

// Empty for any other system call.
std::string_view waiting_call(long number);

}  // namespace hvd
