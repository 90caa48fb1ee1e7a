// Opens /dev/null as standard input, output or error in a program that was started without it.
#pragma once

namespace hvd {

// Opens /dev/null in place of each that is closed: else the next file or socket gets its number,
// and what is meant for the user goes there. For a program's first line.
void open_standard_streams();

}  // namespace hvd
