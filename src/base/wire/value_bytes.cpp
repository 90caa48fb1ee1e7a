#include "base/wire/value_bytes.h"

namespace hvd {

void put(ByteWriter& to, const std::string& text) { to.put_text(text); }
void put(ByteWriter& to, const Status& status) {
  to.put(static_cast<int32_t>(status.code())).put_text(status.message());
}
void put(ByteWriter& to, const std::optional<uint32_t>& number) {
  to.put(number ? static_cast<int64_t>(*number) : int64_t{-1});
}

void get(ByteReader& from, std::string& text) { text = from.get_text(); }
void get(ByteReader& from, Status& status) {
  const auto code = from.get<int32_t>();
  std::string sentence = from.get_text();
  const bool is_known = code >= 0 && code <= static_cast<int32_t>(Code::kInternal);
  status = Status(is_known ? static_cast<Code>(code) : Code::kInternal, std::move(sentence));
}
void get(ByteReader& from, std::optional<uint32_t>& number) {
  number.reset();
  if (const auto read = from.get<int64_t>(); read >= 0) number = static_cast<uint32_t>(read);
}
void get(ByteReader& from, bool& value) { value = from.get<uint8_t>() != 0; }

}  // namespace hvd
