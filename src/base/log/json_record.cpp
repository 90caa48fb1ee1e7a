#include "base/log/json_record.h"

#include <ctime>

#include "base/json_text.h"
#include "base/text.h"

namespace hvd {

std::string json_text_member(std::string_view bytes) {
  return is_utf8(bytes) ? cat("\"text\":\"", json_escaped(bytes), "\"")
                        : cat("\"base64\":\"", to_base64(bytes), "\"");
}

std::string json_time(std::chrono::system_clock::time_point time) {
  return cat("{\"time\":\"", iso_time(TimeZone::kUtc, time), "Z\"");
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

std::string time_text(const char* format, TimeZone zone,
                      std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  zone == TimeZone::kLocal ? ::localtime_r(&seconds, &parts) : ::gmtime_r(&seconds, &parts);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, format, &parts));
}

std::string iso_time(TimeZone zone, std::chrono::system_clock::time_point time) {
  using std::chrono::milliseconds;
  const auto fraction =
      std::chrono::duration_cast<milliseconds>(time.time_since_epoch()) % std::chrono::seconds(1);
  return cat(time_text("%Y-%m-%dT%H:%M:%S", zone, time), ".",
             cat(1000 + fraction.count()).substr(1));
}

}  // namespace hvd
