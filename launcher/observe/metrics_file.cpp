#include "launcher/observe/metrics_file.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr std::chrono::seconds kInterval{15};
constexpr double kSecondsToRemove = 1;

}  // namespace

MetricsFile::MetricsFile(net::asio::any_io_executor executor, std::string path, Text text,
                         std::function<void(const std::string&)> report)
    : path_(std::move(path)),
      text_(std::move(text)),
      report_(std::move(report)),
      writer_(executor),
      timer_(executor) {}

net::Task<void> MetricsFile::run(std::shared_ptr<MetricsFile> file) {
  file->is_running_ = true;
  while (!file->is_over_) {
    if (!file->is_writing_) {
      const std::string text = co_await file->text_();
      if (file->is_over_) break;
      file->is_writing_ = true;
      file->writer_.replace(file->path_, text,
                            [file](int error_number) { file->on_written(error_number); });
    }
    file->timer_.expires_after(kInterval);
    co_await file->timer_.async_wait(net::use_tuple);
  }
  file->is_running_ = false;
  file->timer_.cancel();
}

void MetricsFile::on_written(int error_number) {
  is_writing_ = false;
  if (error_number == 0 || is_over_ || std::exchange(has_failed_, true)) return;
  report_(cat("cannot write ", path_, " (--metrics-file): ", std::strerror(error_number),
              "; the job goes on without it"));
}

net::Task<void> MetricsFile::end(std::shared_ptr<MetricsFile> file) {
  file->is_over_ = true;
  file->writer_.remove(file->path_, [file](int) {
    file->is_removed_ = true;
    file->timer_.cancel();
  });
  const Deadline end = Deadline::after_seconds(kSecondsToRemove);
  while ((file->is_running_ || !file->is_removed_) && !end.passed()) {
    file->timer_.expires_at(end.time());
    co_await file->timer_.async_wait(net::use_tuple);
  }
}

}  // namespace hvd::launcher
