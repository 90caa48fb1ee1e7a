#include "base/log/json_record.h"

#include "base/json_text.h"
#include "base/log/time_text.h"
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

}  // namespace hvd
