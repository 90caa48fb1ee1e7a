#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>

namespace hvd::log {
namespace {

// One logger a process: lines of all runtimes in it go to the same standard error.
struct Logger {
  Logger() : spd("horovod", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    spd.set_level(spdlog::level::warn);
    apply_pattern();
  }
  void apply_pattern() {
    spd.set_pattern(timestamps ? "[%Y-%m-%d %H:%M:%S.%f] [%l] %v" : "[%l] %v");
  }
  spdlog::logger spd;
  std::mutex mutex;      // guards identity and timestamps
  std::string identity;
  bool timestamps = true;
};

Logger& logger() {
  // Never destroyed: a thread of a library may speak while the process exits.
  static Logger& instance = *new Logger;
  return instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kTrace: return spdlog::level::trace;
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarning: return spdlog::level::warn;
    case Level::kError: return spdlog::level::err;
    case Level::kOff: return spdlog::level::off;
  }
  return spdlog::level::err;
}

}  // namespace

void set_level(Level level) { logger().spd.set_level(to_spdlog(level)); }

void set_identity(std::string identity) {
  std::lock_guard lock(logger().mutex);
  logger().identity = std::move(identity);
}

void set_timestamps(bool shown) {
  std::lock_guard lock(logger().mutex);
  logger().timestamps = shown;
  logger().apply_pattern();
}

bool enabled(Level level) { return logger().spd.should_log(to_spdlog(level)); }

bool parse_level(std::string_view word, Level& level) {
  std::string lower;
  for (char c : word) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  if (lower == "trace") level = Level::kTrace;
  else if (lower == "debug") level = Level::kDebug;
  else if (lower == "info") level = Level::kInfo;
  else if (lower == "warning") level = Level::kWarning;
  else if (lower == "error" || lower == "fatal") level = Level::kError;
  else return false;
  return true;
}

void write(Level level, std::string_view message) {
  if (!enabled(level)) return;
  std::string line;
  {
    std::lock_guard lock(logger().mutex);
    if (!logger().identity.empty()) line = logger().identity + ": ";
  }
  line += message;
  logger().spd.log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace hvd::log
