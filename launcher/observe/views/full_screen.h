// A terminal in full-screen mode: the alternate screen without a cursor, and keys without buffering or echo. Restores
// the terminal when it is destroyed, when it is suspended, and when the process dies of a signal that it can catch. One
// object at a time.
#pragma once

#include <termios.h>

#include <cstddef>
#include <string_view>

namespace hvd::launcher {

class FullScreen {
 public:
  // Standard input and output must be terminals.
  FullScreen();
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;

  // leave() restores the terminal, as before Ctrl-Z; enter() begins full-screen mode again.
  void leave();
  void enter();
  // Replaces the picture. `lines`: each line has its newline, and is no wider than the terminal.
  void show(std::string_view lines);

 private:
  termios before_{};
};

struct ScreenSize {
  size_t columns = 80, rows = 24;
};
ScreenSize screen_size();

}  // namespace hvd::launcher
