#include "launcher/observe/views/full_screen.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/files/whole_io.h"
#include "base/text.h"
#include "launcher/output/terminal.h"

namespace hvd::launcher {
namespace {

// The alternate screen, a hidden cursor, and no wrapping: some characters are wider than their counted width.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
constexpr std::string_view kLeave = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

// For restore(), which runs in the only thread of the command.
termios terminal_before;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

void restore() {
  ::tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
  write_all(STDOUT_FILENO, kLeave);
}

using Kind = Key::Kind;

constexpr char kEscapeByte = '\x1b';
// The maximum length of a sequence.
constexpr size_t kLongest = 32;

bool is_between(char byte, char first, char last) { return byte >= first && byte <= last; }

// Returns the size of the escape sequence at the start of the text; 0: it is incomplete; 1: it is the key Esc.
size_t size_of_sequence(std::string_view text) {
  if (text.size() < 2) return 0;
  if (text[1] == kEscapeByte) return 1;
  // Alt with a character sends Esc and the character.
  if (text[1] != '[' && text[1] != 'O') return 2;
  // The Linux console sends "\x1b[[A" for F1.
  const bool is_of_console = text.substr(1).starts_with("[[");
  size_t at = is_of_console ? 3 : 2;
  // Skip parameters and intermediate bytes. An SS3 sequence has only numeric parameters.
  while (at < text.size() && is_between(text[at], ' ', '?')) ++at;
  if (at >= kLongest) return text.size();
  if (at == text.size()) return 0;
  // A control character that interrupts a sequence does not belong to it.
  return is_between(text[at], '@', '~') ? at + 1 : at;
}

// Returns the key of a sequence such as "\x1b[1;5H", "\x1bOH" or "\x1b[4~".
std::optional<Kind> kind_of(std::string_view sequence) {
  if (sequence.size() < 3) return {};
  const char last = sequence.back();
  if (last == 'A') return Kind::kUp;
  if (last == 'B') return Kind::kDown;
  if (last == 'H') return Kind::kHome;
  if (last == 'F') return Kind::kEnd;
  if (last != '~' || sequence[1] != '[') return {};
  const std::string_view numbers = sequence.substr(2, sequence.size() - 3);
  switch (parse_int(numbers.substr(0, numbers.find(';'))).value_or(0)) {
    case 1:
    case 7:
      return Kind::kHome;
    case 4:
    case 8:
      return Kind::kEnd;
    case 5:
      return Kind::kPageUp;
    case 6:
      return Kind::kPageDown;
    default:
      return {};
  }
}

}  // namespace

FullScreen::FullScreen() {
  ::tcgetattr(STDIN_FILENO, &before_);
  terminal_before = before_;
  restore_at_death(restore);
  enter();
}

FullScreen::~FullScreen() { leave(); }

void FullScreen::enter() {
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
  write_all(STDOUT_FILENO, kEnter);
}

void FullScreen::leave() {
  write_all(STDOUT_FILENO, kLeave);
  ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
}

void FullScreen::show(std::string_view lines) {
  std::string bytes = "\x1b[H";
  // Erase before writing: after a full row, the cursor remains on the row's last character.
  while (!lines.empty()) {
    const std::string_view line = take_line(lines);
    bytes += lines.empty() ? cat("\x1b[J", line) : cat("\x1b[K", line, "\r\n");
  }
  write_all(STDOUT_FILENO, bytes);
}

std::vector<Key> KeyReader::take(std::string_view bytes) {
  const std::string all = std::exchange(pending_, {}).append(bytes);
  std::vector<Key> keys;
  for (std::string_view rest = all; !rest.empty();) {
    if (rest[0] != kEscapeByte) {
      keys.push_back({Kind::kCharacter, rest[0]});
      rest.remove_prefix(1);
      continue;
    }
    const size_t size = size_of_sequence(rest);
    if (size == 0) {
      pending_ = rest;
      break;
    }
    const std::string_view sequence = rest.substr(0, size);
    const bool is_console = sequence.starts_with("\x1b[[");
    if (size == 1)
      keys.push_back({.kind = Kind::kEscape});
    else if (const auto kind = kind_of(sequence); kind && !is_console)
      keys.push_back({.kind = *kind});
    rest.remove_prefix(size);
  }
  return keys;
}

std::vector<Key> KeyReader::give_up() {
  const bool is_escape = std::exchange(pending_, {}).size() == 1;
  return is_escape ? std::vector<Key>{{.kind = Kind::kEscape}} : std::vector<Key>();
}

}  // namespace hvd::launcher
