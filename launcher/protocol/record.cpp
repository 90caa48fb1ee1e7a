#include "launcher/protocol/record.h"

namespace hvd::launcher {

Bytes to_record(const Message& message) { return ByteWriter().put_blob(encode(message)).take(); }

Result<std::optional<Message>> take_record(std::string_view& bytes) {
  ByteReader reader(as_bytes(bytes));
  const ByteView blob = reader.get_blob();
  if (reader.failed()) return std::optional<Message>();
  bytes.remove_prefix(bytes.size() - reader.left());
  HVD_ASSIGN_OR_RETURN(Message message, decode(blob));
  return std::optional<Message>(std::move(message));
}

}  // namespace hvd::launcher
