#include "launcher/observe/views/full_screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/text.h"
#include "launcher/output/terminal_end.h"

namespace hvd::launcher {
namespace {

// The alternate screen, a hidden cursor, and rows that do not wrap: some characters are wider than their counted width.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
constexpr std::string_view kLeave = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

// For restore(), which runs in the only thread of the command.
termios terminal_before;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

void write_to_screen(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (size < 0 && errno != EINTR) return;
    if (size > 0) bytes.remove_prefix(static_cast<size_t>(size));
  }
}

void restore() {
  ::tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
  write_to_screen(kLeave);
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
  write_to_screen(kEnter);
}

void FullScreen::leave() {
  write_to_screen(kLeave);
  ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
}

void FullScreen::show(std::string_view lines) {
  std::string bytes = "\x1b[H";
  // Erase before writing: after a full row, the cursor remains on the row's last character.
  while (!lines.empty()) {
    const std::string_view line = take_line(lines);
    bytes += lines.empty() ? cat("\x1b[J", line) : cat("\x1b[K", line, "\r\n");
  }
  write_to_screen(bytes);
}

ScreenSize screen_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {};
  return {size.ws_col, size.ws_row};
}

}  // namespace hvd::launcher
