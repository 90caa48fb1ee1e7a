#include "base/log/json_record.h"

#include <chrono>
#include <ctime>

#include "base/json_text.h"
#include "base/text.h"

namespace hvd {

std::string json_text_member(std::string_view bytes) {
  return is_utf8(bytes) ? cat("\"text\":\"", json_escaped(bytes), "\"")
                        : cat("\"base64\":\"", to_base64(bytes), "\"");
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
