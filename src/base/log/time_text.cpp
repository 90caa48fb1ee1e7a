#include "base/log/time_text.h"

#include <ctime>

#include "base/text.h"

namespace hvd {

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
