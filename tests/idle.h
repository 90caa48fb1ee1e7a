#pragma once

#include <unistd.h>

#include <fstream>
#include <string>

namespace hvd {

// Returns the seconds that each processor has been idle, on average. They grow like a clock's while a program
// waits, and slower or not at all on a busy machine. A limit in idle time judges this program only.
inline double idle_seconds() {
  std::ifstream stat("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0;
  stat >> name >> user >> nice >> system >> idle;
  return idle / static_cast<double>(::sysconf(_SC_CLK_TCK) * ::sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace hvd
