#include "launcher/line_tagger.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/text.h"
#include "launcher/placeholders.h"

namespace hvd::launcher {
namespace {

// Bytes of the character that the text begins with; 0 when it is none.
size_t utf8_size(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  // Too long for what it says, a surrogate, or beyond the last one.
  if ((first == 0xe0 && at(1) < 0xa0) || (first == 0xed && at(1) > 0x9f) ||
      (first == 0xf0 && at(1) < 0x90) || (first == 0xf4 && at(1) > 0x8f)) {
    return 0;
  }
  return size;
}

std::string base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) {
      group = group << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += j <= count ? kDigits[group >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

}  // namespace

void LineTagger::feed(std::string_view bytes, std::string& out) {
  // Searched for each by itself: memchr takes many bytes at once, find_first_of one.
  if (bytes.empty()) return;
  size_t begin = 0;
  // The end of the line before was cut in two.
  if (std::exchange(has_returned_, false) && bytes[0] == '\n') {
    if (format_ == LineFormat::kText) out += '\n';
    begin = 1;
  }
  size_t newline = bytes.find('\n', begin);
  size_t carriage_return = bytes.find('\r', begin);
  while (begin < bytes.size()) {
    const size_t end = std::min(newline, carriage_return);
    if (end == std::string_view::npos) return hold(bytes.substr(begin), out);
    // A progress bar's lone '\r' is shown at once: nobody waits for a '\n' that may never come.
    const bool both = end + 1 == newline;
    std::string_view line = bytes.substr(begin, end - begin);
    const std::string_view line_end = bytes.substr(end, both ? 2 : 1);
    begin = end + line_end.size();
    if (newline < begin) newline = bytes.find('\n', begin);
    if (carriage_return < begin) carriage_return = bytes.find('\r', begin);
    while (held_.size() + line.size() > kMaxLine) {
      const size_t room = kMaxLine - held_.size();
      hold(line.substr(0, room), out);
      line.remove_prefix(room);
    }
    append(line, line_end, out);
    has_returned_ = line_end == "\r" && begin == bytes.size();
  }
}

void LineTagger::hold(std::string_view piece, std::string& out) {
  while (!piece.empty()) {
    const size_t room = std::min(kMaxLine - held_.size(), piece.size());
    held_.append(piece.substr(0, room));
    piece.remove_prefix(room);
    if (held_.size() == kMaxLine) finish(out);
  }
}

void LineTagger::finish(std::string& out) {
  if (held_.empty()) return;
  append({}, "\n", out);
  held_.shrink_to_fit();
}

// What is held, `line`, and the end that the rank wrote.
void LineTagger::append(std::string_view line, std::string_view end, std::string& out) {
  if (format_ == LineFormat::kText) {
    out.append(tag_).append(held_).append(line).append(end);
  } else {
    held_.append(line);
    out.append(tag_);
    if (const auto text = json_escaped(held_)) {
      out.append("\"text\":\"").append(*text);
    } else {
      out.append("\"base64\":\"").append(base64(held_));
    }
    out.append(end == "\r" ? "\",\"end\":\"\\r\"}\n" : "\"}\n");
  }
  held_.clear();
}

Status check_tag(std::string_view tag) {
  constexpr std::string_view kWords[] = {"rank", "host", "local_rank", "stream"};
  return check_placeholders("--tag", tag, kWords);
}

std::optional<std::string> json_escaped(std::string_view bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    const size_t size = utf8_size(bytes.substr(i));
    if (size == 0) return {};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte == '"' || byte == '\\') {
      text += {'\\', bytes[i]};
    } else if (byte < 0x20) {
      text += {'\\', 'u', '0', '0', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      text += bytes.substr(i, size);
    }
    i += size;
  }
  return text;
}

}  // namespace hvd::launcher
