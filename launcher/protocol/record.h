// A record: a size of four bytes, followed by the message. The socket of `horovodrun exec` and the log of a job contain
// records. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "launcher/protocol/protocol.h"
#include "net/frame.h"

namespace hvd::launcher {

inline Bytes to_record(const Message& message) {
  return ByteWriter().put_blob(encode(message)).take();
}
// Removes the first record from the front of `bytes`, and returns its message; empty if the record is incomplete.
inline Result<std::optional<Message>> take_record(std::string_view& bytes) {
  ByteReader reader(as_bytes(bytes));
  const ByteView blob = reader.get_blob();
  if (reader.failed()) return std::optional<Message>();
  bytes.remove_prefix(bytes.size() - reader.left());
  HVD_ASSIGN_OR_RETURN(Message message, decode(blob));
  return std::optional<Message>(std::move(message));
}

// Returns a message as a single frame, for a connection without a queue of frames.
inline Bytes framed(const Message& message) {
  net::FrameWriter writer;
  writer.put({}, encode(message), net::Urgency::kControl);
  return writer.take(1);
}

}  // namespace hvd::launcher
