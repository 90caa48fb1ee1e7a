// A record: a size of four bytes, followed by the message. The socket of `horovodrun exec` and the
// log of a job contain records. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

Bytes to_record(const Message& message);
// Removes the first record from the front of `bytes`, and returns its message; empty if the record is incomplete.
Result<std::optional<Message>> take_record(std::string_view& bytes);

}  // namespace hvd::launcher
