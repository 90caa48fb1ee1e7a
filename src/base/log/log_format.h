// How lines of the log look, which a program chooses when it starts; see log.h for who writes them.
#pragma once

namespace hvd::log {

// kJson: each line is an object, see json_record.h, whose source is the identity.
enum class Format { kText, kJson };

void set_format(Format format);
Format format();

}  // namespace hvd::log
