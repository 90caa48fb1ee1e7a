// Finds the keys in what a terminal sends: characters, and the escape sequences of other keys, which may come in several
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
  char character = 0;  // of kCharacter
};

class KeyReader {
 public:
  // Returns the keys that are whole. Leaves out keys that the command does not know, such as F5.
  std::vector<Key> take(std::string_view bytes);
  // Whether a key may have come in part. If nothing follows for a moment, call give_up().
  bool is_waiting() const { return !pending_.empty(); }
  // Returns the key Esc if there was nothing else.
  std::vector<Key> give_up();

 private:
  std::string pending_;  // begins with the byte of Esc
};

}  // namespace hvd::launcher
