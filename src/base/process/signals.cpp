#include "base/process/signals.h"

#include <cstring>

#include "base/text.h"

namespace hvd {

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? cat(number) : cat("SIG", name);
}

std::string signal_text(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? cat(number) : cat(number, " (SIG", name, ")");
}

void set_up_signals() {
  ::signal(SIGXFSZ, SIG_IGN);
  reset_signals({});
}

void set_back_signals() { ::signal(SIGXFSZ, SIG_DFL); }

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

std::vector<int> ignored_signals() {
  std::vector<int> ignored;
  for (int number = 1; number < NSIG; ++number) {
    if (is_ignored(number)) ignored.push_back(number);
  }
  return ignored;
}

void reset_signals(const std::vector<int>& ignored) {
  for (const int number : ignored) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

AllSignalsBlocked::AllSignalsBlocked() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before_);
}

AllSignalsBlocked::~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace hvd
