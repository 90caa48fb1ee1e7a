// The end of a program that cannot go on: a sentence in place of an abort.
#pragma once

#include <exception>

namespace hvd {

// For a program's first lines. When memory runs out, or nothing catches the exception by which a library
// reports that the system refuses it a descriptor or a thread, the process says so on standard error and
// exits with `exit_code`. `program` begins the sentence, and must live as long as the process.
// `error_number_of`: the errno value in an exception of a library, else 0; may be null.
void end_by_sentence(const char* program, int exit_code,
                     int (*error_number_of)(const std::exception&) = nullptr);

// Calls `restore`, which is async-signal-safe, before such a sentence and before an abort for another exception; null:
// nothing.
void before_last_words(void (*restore)());

}  // namespace hvd
