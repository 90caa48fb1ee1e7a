// Descriptors for the standard streams of a started program. Any thread.
#pragma once

#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd {

struct Pipe {
  UniqueFd read, write;
};

// Both ends are closed on exec, and above 2.
Result<Pipe> open_pipe();

// Moves a descriptor above 2. A process without standard streams may get the numbers 0 to 2, where the program's
// streams would overwrite it.
Status move_above_standard(UniqueFd& descriptor);

}  // namespace hvd
