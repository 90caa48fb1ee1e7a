// How lines of the log look, and where they go, which a program chooses; see log.h for who writes them. Any
// thread.
#pragma once

#include <functional>
#include <string_view>

namespace hvd::log {

// kJson: each line is an object, see json_record.h, whose source is the identity.
enum class Format { kText, kJson };

void set_format(Format format);
Format format();

// Gets each line with its end, on the thread that logs it. False: the line goes to standard error, as all
// lines do without a writer.
using Writer = std::function<bool(std::string_view line)>;
void set_writer(Writer writer);

}  // namespace hvd::log
