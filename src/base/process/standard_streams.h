// Opens /dev/null as standard input, output or error in a program that was started without it.
#pragma once

namespace hvd {

// Opens /dev/null in place of each closed stream: otherwise the next file or socket would get the
// stream's number and receive the program's output. Call it first in a program.
void open_standard_streams();

}  // namespace hvd
