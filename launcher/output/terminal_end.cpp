#include "launcher/output/terminal_end.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <string_view>

#include "base/limits/last_resort.h"

namespace hvd::launcher {
namespace {

constexpr int kDeadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT, SIGSYS, SIGTRAP};

// The function that the signal handler calls.
std::atomic<void (*)()> restore_now = nullptr;

// SA_RESETHAND has restored the default action of the signal.
void restore_and_die(int number) {
  if (const auto restore = restore_now.exchange(nullptr)) restore();
  ::raise(number);
}

std::atomic<size_t> rows_to_erase = 0;

// Allocates nothing.
void erase_rows() {
  constexpr std::string_view kBegin = "\x1b[?7h\r", kUp = "\x1b[A", kErase = "\x1b[J";
  std::array<char, 64> bytes{};
  const size_t rows = rows_to_erase.exchange(0);
  if (rows == 0) return;
  char* end = std::ranges::copy(kBegin, bytes.begin()).out;
  for (size_t row = 1; row < rows && end + kUp.size() + kErase.size() <= bytes.end(); ++row)
    end = std::ranges::copy(kUp, end).out;
  end = std::ranges::copy(kErase, end).out;
  [[maybe_unused]] const ssize_t size =
      ::write(STDERR_FILENO, bytes.data(), static_cast<size_t>(end - bytes.begin()));
}

}  // namespace

void erase_at_death(size_t rows) {
  rows_to_erase = rows;
  if (rows > 0 && restore_now != erase_rows) restore_at_death(erase_rows);
}

void restore_at_death(void (*restore)()) {
  before_last_words(restore);
  if (restore_now.exchange(restore) != nullptr || restore == nullptr) return;
  struct sigaction action {};
  action.sa_handler = restore_and_die;
  action.sa_flags = SA_RESETHAND;
  for (const int number : kDeadly) {
    struct sigaction before {};
    // Leave a signal that is ignored or has a sanitizer's handler.
    if (::sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_DFL)
      ::sigaction(number, &action, nullptr);
  }
}

}  // namespace hvd::launcher
