// A terminal in full-screen mode: the alternate screen without a cursor, and keys without buffering or echo. The
// destructor restores the terminal, and so does each fatal signal that a process can catch. One object at a time.
#pragma once

#include <termios.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

struct Key {
  enum class Kind : uint8_t { kCharacter, kEscape, kUp, kDown, kPageUp, kPageDown, kHome, kEnd };
  Kind kind = Kind::kCharacter;
  char character = 0;  // only for kCharacter
};

// Parses keys from a terminal's input: characters, and the escape sequences of other keys. A sequence may arrive in
// several parts. Pure.
class KeyReader {
 public:
  // Returns the complete keys. Omits keys that the command does not know, such as F5.
  std::vector<Key> take(std::string_view bytes);
  // Returns whether the last key may be incomplete. If no more bytes arrive within a moment, call give_up().
  bool is_waiting() const { return !pending_.empty(); }
  // Returns the key Esc if only the Esc byte is pending.
  std::vector<Key> give_up();

 private:
  std::string pending_;  // begins with the byte of Esc
};

}  // namespace hvd::launcher
