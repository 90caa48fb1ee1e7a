// Descriptors that a forked child of this process must not keep: a socket that a child holds open
// hides the death of its parent from the peer. Any thread. A fork is an event of the process, and
// so this list is the process's; it owns nothing.
#pragma once

namespace hvd {

// From now on a child made by fork() closes it at once.
void close_in_forked_child(int fd);
// Call before closing it.
void forget_in_forked_child(int fd);

}  // namespace hvd
