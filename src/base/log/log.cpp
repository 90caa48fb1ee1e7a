#include "base/log/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <ctime>
#include <memory>

#include "base/json_text.h"
#include "base/mutex.h"
#include "base/text.h"

namespace hvd::log {
namespace {

// Passes lines to the writer or to standard error. Holds no lock during the output: standard error
// may stall one thread, and must not stall threads whose lines go to the writer.
class LogSink final : public spdlog::sinks::sink {
 public:
  void set_writer(Writer writer) {
    MutexLock lock(mutex_);
    writer_ = std::move(writer);
  }
  void log(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    Writer writer;
    {
      MutexLock lock(mutex_);
      formatter_->format(message, line);
      writer = writer_;
    }
    if (!writer || !writer({line.data(), line.size()}))
      std::fwrite(line.data(), 1, line.size(), stderr);
  }
  void flush() override {}
  void set_pattern(const std::string& pattern) override {
    set_formatter(std::make_unique<spdlog::pattern_formatter>(pattern));
  }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    MutexLock lock(mutex_);
    formatter_ = std::move(formatter);
  }

 private:
  Mutex mutex_;
  Writer writer_ HVD_GUARDED_BY(mutex_);
  std::unique_ptr<spdlog::formatter> formatter_ HVD_GUARDED_BY(mutex_) =
      std::make_unique<spdlog::pattern_formatter>();
};

// One logger per process, because all runtimes in it share standard error.
struct Logger {
  Logger() : spd("horovod", output) {
    spd.set_level(spdlog::level::warn);
    MutexLock lock(mutex);
    apply_pattern();
  }
  void apply_pattern() HVD_REQUIRES(mutex) {
    spd.set_pattern(format == Format::kJson ? "%v"
                    : timestamps            ? "[%Y-%m-%d %H:%M:%S.%f] [%l] %v"
                                            : "[%l] %v");
  }
  const std::shared_ptr<LogSink> output = std::make_shared<LogSink>();
  spdlog::logger spd;
  Mutex mutex;
  std::string identity HVD_GUARDED_BY(mutex);
  bool timestamps HVD_GUARDED_BY(mutex) = true;
  Format format HVD_GUARDED_BY(mutex) = Format::kText;
};

Logger& logger() {
  // Never destroyed: a library's thread may log while the process exits.
  static Logger& instance = *new Logger;
  return instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kTrace:
      return spdlog::level::trace;
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::err;
}

std::string_view name_of(Level level) {
  constexpr std::string_view kNames[] = {"trace", "debug", "info", "warning", "error", "off"};
  return kNames[static_cast<size_t>(level)];
}

}  // namespace

void set_level(Level level) { logger().spd.set_level(to_spdlog(level)); }

void set_identity(std::string identity) {
  MutexLock lock(logger().mutex);
  logger().identity = std::move(identity);
}

void set_timestamps(bool shown) {
  MutexLock lock(logger().mutex);
  logger().timestamps = shown;
  logger().apply_pattern();
}

void set_format(Format format) {
  MutexLock lock(logger().mutex);
  logger().format = format;
  logger().apply_pattern();
}

Format format() {
  MutexLock lock(logger().mutex);
  return logger().format;
}

void set_writer(Writer writer) { logger().output->set_writer(std::move(writer)); }

bool enabled(Level level) { return logger().spd.should_log(to_spdlog(level)); }

bool parse_level(std::string_view word, Level& level) {
  std::string lower;
  for (char c : word) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  if (lower == "trace")
    level = Level::kTrace;
  else if (lower == "debug")
    level = Level::kDebug;
  else if (lower == "info")
    level = Level::kInfo;
  else if (lower == "warning")
    level = Level::kWarning;
  else if (lower == "error" || lower == "fatal")
    level = Level::kError;
  else
    return false;
  return true;
}

void write(Level level, std::string_view message) {
  if (!enabled(level)) return;
  std::string line;
  {
    MutexLock lock(logger().mutex);
    const bool is_json = logger().format == Format::kJson;
    if (is_json)
      line = json_records(logger().identity, name_of(level), message);
    else if (!logger().identity.empty())
      line = logger().identity + ": ";
    if (is_json)
      line.pop_back();  // spdlog adds the newline
    else
      line += message;
  }
  logger().spd.log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace hvd::log

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
