#include <doctest/doctest.h>

#include <cstdlib>
#include <ctime>

#include "base/log/log.h"

using namespace hvd;

TEST_CASE("a time is written by its zone") {
  const auto time = std::chrono::system_clock::from_time_t(86400);
  ::setenv("TZ", "XXX-2", 1);
  ::tzset();
  CHECK(time_text("%Y-%m-%dT%H:%M:%SZ", TimeZone::kUtc, time) == "1970-01-02T00:00:00Z");
  CHECK(time_text("before-%Y-%m-%dT%H.%M", TimeZone::kLocal, time) == "before-1970-01-02T02.00");
  ::unsetenv("TZ");
  ::tzset();
}

TEST_CASE("the time of ISO 8601 has three digits of milliseconds") {
  const std::string text = iso_time(TimeZone::kUtc);
  REQUIRE(text.size() == 23);
  CHECK(text[10] == 'T');
  CHECK(text[19] == '.');
  CHECK(text.substr(20).find_first_not_of("0123456789") == std::string::npos);
}
