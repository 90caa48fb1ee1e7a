// Bounds-checked little-endian reading and writing of messages. After a read beyond the end, a
// reader stays failed and yields zeros: a parser needs only one check, at its end.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/status.h"

namespace hvd {

static_assert(std::endian::native == std::endian::little, "messages are little-endian");

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;

inline ByteView as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline Bytes to_bytes(std::string_view text) {
  const ByteView view = as_bytes(text);
  return {view.begin(), view.end()};
}

class ByteWriter {
 public:
  template <typename T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) ByteWriter& put(T value) {
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof value);
    return *this;
  }
  // Writes the length (32 bits), then the bytes.
  ByteWriter& put_blob(ByteView blob) {
    put(static_cast<uint32_t>(blob.size()));
    return put_raw(blob);
  }
  ByteWriter& put_text(std::string_view text) { return put_blob(as_bytes(text)); }
  ByteWriter& put_raw(ByteView raw) {
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
    return *this;
  }
  size_t size() const { return bytes_.size(); }
  ByteView view() const { return bytes_; }
  Bytes take() { return std::move(bytes_); }
  // Empties the message and keeps the allocated memory.
  void clear() { bytes_.clear(); }

 private:
  Bytes bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(ByteView bytes) : bytes_(bytes) {}

  template <typename T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) T get() {
    T value{};
    const ByteView raw = get_raw(sizeof value);
    if (!failed_) std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }
  // The view points into the reader's bytes.
  ByteView get_blob() { return get_raw(get<uint32_t>()); }
  std::string get_text() { return std::string(as_text(get_blob())); }
  ByteView get_raw(size_t size) {
    if (failed_ || size > bytes_.size()) {
      failed_ = true;
      return {};
    }
    const ByteView raw = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return raw;
  }
  // Reads a count of items that take at least `item_size` bytes each. Returns 0, and marks the reader as failed, if the
  // rest of the message is too short for the count.
  uint32_t get_count(size_t item_size) {
    const auto count = get<uint32_t>();
    if (item_size != 0 && count > bytes_.size() / item_size) failed_ = true;
    return failed_ ? 0 : count;
  }
  size_t left() const { return failed_ ? 0 : bytes_.size(); }
  bool failed() const { return failed_; }
  // Returns ok if all bytes were read and no read went beyond the end. `what` names the message.
  Status finish(std::string_view what) const {
    if (failed_) return invalid_argument(std::string(what) + " is cut short");
    if (!bytes_.empty()) return invalid_argument(std::string(what) + " has bytes after its end");
    return {};
  }

 private:
  ByteView bytes_;
  bool failed_ = false;
};

}  // namespace hvd
