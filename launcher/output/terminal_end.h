// Restores a terminal when the process dies of a catchable signal, of a defect, or of a lack of memory.
#pragma once

#include <cstddef>

namespace hvd::launcher {

// Calls `restore`, which must be async-signal-safe, before the process dies. A later call replaces it; null: no
// function.
void restore_at_death(void (*restore)());
// Erases this many terminal rows before the process dies, if standard error is the terminal; the cursor is in the last
// row.
void erase_at_death(size_t rows);

}  // namespace hvd::launcher
