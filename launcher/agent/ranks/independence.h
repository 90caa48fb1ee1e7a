// Collects the signs that the ranks of this host know of each other. Without any, each rank of a Python
// program has done the work of the whole job, which looks like success: the launcher warns of it at the
// end. The agent owns it. Lives on the agent's loop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd::launcher {

class Independence {
 public:
  // The ranks run this command in this folder. `master_port`: at which rank 0 of this host may listen; 0: rank 0
  // is on another host.
  void begin(std::vector<std::string> command, std::string folder, uint16_t master_port);
  // A rank has joined a world.
  void on_sign() { is_refuted_ = true; }
  // Looks for a socket at the master port, unless the sources of the program have a sign. The agent calls it when
  // it runs anyway: at pings and exits of ranks. The kernel mostly lists a closed connection for a minute.
  void look_at_master_port();
  // Whether there was no sign, and the sources of the program have none either.
  bool holds();

 private:
  void look_at_sources();

  std::vector<std::string> command_;
  std::string folder_;
  uint16_t master_port_ = 0;
  bool has_read_sources_ = false;
  bool is_refuted_ = true;  // until the ranks start
};

}  // namespace hvd::launcher
