#include "base/limits/last_resort.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <new>
#include <system_error>

#include "base/status.h"

namespace hvd {
namespace {

// Global, because terminate handlers and new handlers have no parameters.
struct TerminateOptions {
  const char* program = "";
  int exit_code = 1;
  int (*error_number_of)(const std::exception&) = nullptr;
  std::terminate_handler usual = nullptr;
  std::atomic<void (*)()> restore = nullptr;
};
TerminateOptions& terminate_options() {
  static TerminateOptions* const kOptions = new TerminateOptions;
  return *kOptions;
}

void restore() {
  if (const auto call = terminate_options().restore.exchange(nullptr)) call();
}

// Ends the process when memory has run out. Allocates nothing.
void end_without_memory() {
  char host[65] = "", text[256];
  ::gethostname(host, sizeof host - 1);
  rlimit limit{};
  const bool is_limited = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  int size = 0;
  if (is_limited) {
    size = std::snprintf(text, sizeof text,
                         "%s: there is no memory left: this process may use %llu MiB on host %s; "
                         "raise that by ulimit -v\n",
                         terminate_options().program,
                         static_cast<unsigned long long>(limit.rlim_cur >> 20), host);
  } else {
    size = std::snprintf(text, sizeof text,
                         "%s: there is no memory left on host %s; end other programs there, or "
                         "start fewer ranks\n",
                         terminate_options().program, host);
  }
  restore();
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, static_cast<size_t>(size));
  ::_exit(terminate_options().exit_code);
}

[[noreturn]] void end_because(const Status& why) {
  restore();
  std::fprintf(stderr, "%s: %s\n", terminate_options().program, why.message().c_str());
  std::fflush(stderr);
  ::_exit(terminate_options().exit_code);
}

void end_without_handler() {
  try {
    if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::system_error& error) {
    end_because(status_of(error));
  } catch (const std::exception& error) {
    const int number = terminate_options().error_number_of == nullptr
                           ? 0
                           : terminate_options().error_number_of(error);
    if (number != 0) end_because(system_error("cannot go on", number));
    // Any other exception is a defect, which the default handler below reports.
  } catch (...) {
  }
  restore();
  terminate_options().usual();
}

}  // namespace

void end_by_sentence(const char* program, int exit_code,
                     int (*error_number_of)(const std::exception&)) {
  TerminateOptions& options = terminate_options();
  options.program = program;
  options.exit_code = exit_code;
  options.error_number_of = error_number_of;
  options.usual = std::set_terminate(end_without_handler);
  std::set_new_handler(end_without_memory);
}

void before_last_words(void (*restore)()) { terminate_options().restore = restore; }

}  // namespace hvd
