// The goodbye message to a PMI server. hydra takes a connection that breaks off without it for a crash,
// and kills the other ranks.
#pragma once

namespace hvd::bootstrap {

// As this process ends in good order, "cmd=finalize" goes out on the server's descriptor, unless
// that is closed by then, as MPI does when it has said so itself.
void send_goodbye_at_exit(int fd);

}  // namespace hvd::bootstrap
