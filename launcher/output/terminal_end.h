// Restores the terminal's state when a fatal signal, a failed check or a lack of memory ends the process.
#pragma once

#include <cstddef>

namespace hvd::launcher {

// Registers `restore`, which is called before the process dies, and must be async-signal-safe. A later call replaces
// the function; null removes the function.
void restore_at_death(void (*restore)());
// Registers the number of rows at the end of the terminal to erase before the process dies. The cursor must be in the
// last row, and standard error must be the terminal. Uses restore_at_death().
void erase_at_death(size_t rows);

}  // namespace hvd::launcher
