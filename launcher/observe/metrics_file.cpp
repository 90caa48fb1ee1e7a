// Writes the metrics of the job to a file (--metrics-file) every 15 seconds, atomically by rename, as the textfile
// collector of node_exporter requires. Removes the file at the end of each launch: otherwise Prometheus would keep
// reading its values. An unresponsive file system does not delay the job, and delays its end by at most a second.

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "launcher/observe/parts.h"
#include "launcher/output/sink.h"

namespace hvd::launcher {
namespace {

constexpr std::chrono::seconds kInterval{15};
constexpr double kSecondsToRemove = 1;

class MetricsFile : public JobPart {
 public:
  explicit MetricsFile(PartLaunch& launch);

  void on(const JobEvent& event) override;
  net::Task<void> end() override;

 private:
  bool is_wanted() const;
  net::Task<void> write();
  void on_written(int error_number);

  PartLaunch& launch_;
  const std::string& path_;
  WriterThread writer_;
  net::asio::steady_timer timer_;
  bool has_begun_ = false;
  bool is_running_ = false;
  bool is_removed_ = false;
  bool is_writing_ = false;
  bool has_failed_ = false;
};

MetricsFile::MetricsFile(PartLaunch& launch)
    : launch_(launch),
      path_(launch.settings().output.metrics_file),
      writer_(launch.executor()),
      timer_(launch.executor()) {}

void MetricsFile::on(const JobEvent& event) {
  if (!std::holds_alternative<Starting>(event) || !is_wanted()) return;
  has_begun_ = true;
  launch_.run(shared_from_this(), write());
}

bool MetricsFile::is_wanted() const {
  if (path_.empty()) return false;
  std::error_code error;
  const auto kind = std::filesystem::symlink_status(path_, error).type();
  const bool is_file =
      kind == std::filesystem::file_type::regular || kind == std::filesystem::file_type::not_found;
  if (!is_file) {
    launch_.output().print(
        cat("metrics are not written: --metrics-file ", path_,
            " is no regular file, which a new one could replace; name another path"));
  }
  return is_file;
}

net::Task<void> MetricsFile::write() {
  const auto self = std::static_pointer_cast<MetricsFile>(shared_from_this());
  is_running_ = true;
  while (!is_over_) {
    if (!is_writing_) {
      const std::string text = co_await launch_.inspector().metrics();
      if (is_over_) break;
      is_writing_ = true;
      writer_.replace(path_, text, [self](int error_number) { self->on_written(error_number); });
    }
    timer_.expires_after(kInterval);
    co_await timer_.async_wait(net::use_tuple);
  }
  is_running_ = false;
  timer_.cancel();
}

void MetricsFile::on_written(int error_number) {
  is_writing_ = false;
  if (error_number == 0 || is_over_ || std::exchange(has_failed_, true)) return;
  launch_.output().print(cat("cannot write ", path_, " (--metrics-file): ",
                             std::strerror(error_number), "; the job goes on without it"));
}

net::Task<void> MetricsFile::end() {
  is_over_ = true;
  if (!has_begun_) co_return;
  writer_.remove(path_, [self = std::static_pointer_cast<MetricsFile>(shared_from_this())](int) {
    self->is_removed_ = true;
    self->timer_.cancel();
  });
  const Deadline end = Deadline::after_seconds(kSecondsToRemove);
  while ((is_running_ || !is_removed_) && !end.passed()) {
    timer_.expires_at(end.time());
    co_await timer_.async_wait(net::use_tuple);
  }
}

}  // namespace

std::shared_ptr<JobPart> metrics_file(PartLaunch& launch) {
  return std::make_shared<MetricsFile>(launch);
}

}  // namespace hvd::launcher
