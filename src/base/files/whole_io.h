// Reads and writes all bytes of a blocking descriptor, also if signals interrupt the calls. After an error, errno has
// the reason.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

namespace hvd {

// Returns false after an error.
inline bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::write(file, bytes.data(), bytes.size());
    if (size < 0 && errno != EINTR) return false;
    if (size > 0) bytes.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

// Appends the bytes of the file to `text`: all of them, or at most `most`. Returns false after an error.
inline bool read_all(int file, std::string& text, size_t most = SIZE_MAX) {
  constexpr size_t kPiece = 64 << 10;
  while (most > 0) {
    const size_t held = text.size(), wanted = most < kPiece ? most : kPiece;
    text.resize(held + wanted);
    const ssize_t size = ::read(file, text.data() + held, wanted);
    const size_t got = size > 0 ? static_cast<size_t>(size) : 0;
    text.resize(held + got);
    if (size < 0 && errno != EINTR) return false;
    if (size == 0) break;
    most -= got;
  }
  return true;
}

}  // namespace hvd
