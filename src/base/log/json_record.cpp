#include "base/log/json_record.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>

#include "base/text.h"

namespace hvd {
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

std::string json_text_member(std::string_view bytes) {
  const auto text = json_escaped(bytes);
  return text ? cat("\"text\":\"", *text, "\"") : cat("\"base64\":\"", base64(bytes), "\"");
}

std::string json_time() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  const size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return cat("{\"time\":\"", std::string_view(text, size), ".", cat(1000 + milliseconds).substr(1),
             "Z\"");
}

std::string json_records(std::string_view source, std::string_view level, std::string_view text) {
  std::string records;
  for (const std::string& line : split(text, '\n')) {
    records += cat(json_time(), ",\"source\":\"", source, "\"");
    if (!level.empty()) records += cat(",\"level\":\"", level, "\"");
    records += cat(",", json_text_member(line), "}\n");
  }
  return records;
}

}  // namespace hvd
