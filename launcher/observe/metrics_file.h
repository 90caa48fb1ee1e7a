// Writes the metrics of the job to a file (--metrics-file), every 15 seconds and whole by rename, as the textfile
// collector of node_exporter needs it. Removes the file at the end of the job: its values would last for ever. A file
// system that does not answer holds up neither the job nor its end. JobLaunch owns it. Lives on the launch's loop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launcher/output/writer_thread.h"
#include "net/asio.h"

namespace hvd::launcher {

class MetricsFile {
 public:
  using Text = std::function<net::Task<std::string>()>;
  // `report`: gets the sentence about the first failure.
  MetricsFile(net::asio::any_io_executor executor, std::string path, Text text,
              std::function<void(const std::string&)> report);

  // Writes until end().
  static net::Task<void> run(std::shared_ptr<MetricsFile> file);
  // No call of `text` runs afterwards, and `report` is not called.
  static net::Task<void> end(std::shared_ptr<MetricsFile> file);

 private:
  void on_written(int error_number);

  const std::string path_;
  const Text text_;
  const std::function<void(const std::string&)> report_;
  WriterThread writer_;
  net::asio::steady_timer timer_;
  bool is_running_ = false;
  bool is_over_ = false;
  bool is_removed_ = false;
  bool is_writing_ = false;
  bool has_failed_ = false;
};

}  // namespace hvd::launcher
