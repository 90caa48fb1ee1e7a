// Descriptors for the standard streams of a started program. Any thread.
#pragma once

#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd {

struct Pipe {
  UniqueFd read, write;
};

// Creates a pipe whose two descriptors have O_CLOEXEC and numbers above 2.
Result<Pipe> open_pipe();

// Moves a descriptor above 2. In a process without standard streams, a new descriptor may get a
// number from 0 to 2, and the program's streams would overwrite it.
Status move_above_standard(UniqueFd& descriptor);

// Opens /dev/null as standard input, output or error in a program that was started without it.

// Opens /dev/null in place of each closed stream: otherwise the next file or socket would get the
// stream's number and receive the program's output. Call it first in a program.
void open_standard_streams();

}  // namespace hvd
