// Makes a program that cannot continue exit with an error message, without an abort.
#pragma once

#include <exception>

namespace hvd {

// Call this first in a program. The process prints an error message and exits with `exit_code` when
// memory runs out, or when nothing catches a library's exception about a refused descriptor or
// thread. The message begins with `program`, which must outlive the process. `error_number_of`
// returns the errno value in a library's exception, else 0; may be null.
void end_by_sentence(const char* program, int exit_code,
                     int (*error_number_of)(const std::exception&) = nullptr);

// Sets a function to call before such a message, and before the abort for any other exception. `restore` must be
// async-signal-safe; null: no call.
void before_last_words(void (*restore)());

}  // namespace hvd
