// A record: a message behind its size, which takes four bytes. The socket of `horovodrun exec` and the
// log of a job hold records. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

Bytes to_record(const Message& message);
// Takes the first record off the front of `bytes`; none when it is not whole.
Result<std::optional<Message>> take_record(std::string_view& bytes);

}  // namespace hvd::launcher
