// Parses keys from a terminal's input: characters, and the escape sequences of other keys, which may arrive in several
// parts. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

struct Key {
  enum class Kind : uint8_t { kCharacter, kEscape, kUp, kDown, kPageUp, kPageDown, kHome, kEnd };
  Kind kind = Kind::kCharacter;
  char character = 0;  // only for kCharacter
};

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
