// Restores a terminal when the process dies of a signal that it can catch, of a defect, or for want of memory.
#pragma once

#include <cstddef>

namespace hvd::launcher {

// Calls `restore`, which is async-signal-safe, before the process dies. The last call holds; null: nothing is restored.
void restore_at_death(void (*restore)());
// As many rows of a terminal that is standard error, of which the cursor is in the last, are erased then.
void erase_at_death(size_t rows);

}  // namespace hvd::launcher
