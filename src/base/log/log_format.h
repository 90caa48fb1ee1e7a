// The format and the destination of the log, which a program chooses. log.h writes the lines. Any
// thread.
#pragma once

#include <functional>
#include <string_view>

namespace hvd::log {

// kJson: each line is an object (json_record.h) with the identity as its source.
enum class Format { kText, kJson };

void set_format(Format format);
Format format();

// Receives each line with its newline, on the thread that logs it. If the writer returns false,
// or if no writer is set, the line goes to standard error.
using Writer = std::function<bool(std::string_view line)>;
void set_writer(Writer writer);

}  // namespace hvd::log
