#include "base/log/json_record.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>

#include "base/json_text.h"
#include "base/text.h"

namespace hvd {
namespace {

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

std::string json_text_member(std::string_view bytes) {
  return is_utf8(bytes) ? cat("\"text\":\"", json_escaped(bytes), "\"")
                        : cat("\"base64\":\"", base64(bytes), "\"");
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
