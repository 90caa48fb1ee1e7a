// Names the system calls in which threads wait. Some architectures lack some of the calls.
#pragma once

#include <string_view>

namespace hvd {

// Returns the name of a system call in which threads wait; empty for any other call.
std::string_view waiting_call(long number);

}  // namespace hvd
