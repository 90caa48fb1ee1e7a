#include "launcher/state/log_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/text.h"
#include "launcher/output/report.h"
#include "launcher/protocol/record.h"

namespace hvd::launcher {

void LogFiles::write(const OutputChunk& lines) {
  if (lost_ > 0) finish();
  if (lost_ > 0 || !append(lines)) lost_ += lines.bytes.size();
}

void LogFiles::finish() {
  if (lost_ == 0) return;
  const std::string notice =
      line_of(cat(lost_, " bytes of output are missing here: they could not be written to disk: ",
                  std::strerror(error_)));
  if (append({.rank = -1, .is_error = 1, .bytes = notice})) lost_ = 0;
}

bool LogFiles::drop_oldest() {
  if (files_.empty()) return false;
  // Close the file before its removal, because an open file keeps its blocks.
  if (files_.size() == 1) file_.reset();
  drop_file(files_.front());
  return true;
}

void LogFiles::begin_again() {
  file_.reset();
  files_.clear();
}

bool LogFiles::append(const OutputChunk& lines) {
  const Bytes record = to_record(lines);
  if (size_ + record.size() > limits_.file_size) file_.reset();
  while (!((file_ || begin_file()) && write_all(record))) {
    error_ = errno;
    const bool is_full = error_ == ENOSPC || error_ == EDQUOT || error_ == EFBIG;
    if (!is_full || !drop_oldest()) return false;
  }
  return true;
}

bool LogFiles::begin_file() {
  const std::string name = cat(next_);
  file_.reset(::openat(folder_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                       S_IRUSR | S_IWUSR));
  if (!file_) return false;
  size_ = 0;
  files_.push_back(next_++);
  if (files_.size() > limits_.files) drop_file(files_.front());
  return true;
}

bool LogFiles::write_all(ByteView record) {
  const bool is_first = size_ == 0;
  while (!record.empty()) {
    const ssize_t size = ::write(file_.get(), record.data(), record.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      const int error = errno;
      // Readers skip a partial record, so the next record begins another file.
      file_.reset();
      if (is_first) drop_file(files_.back());
      errno = error;
      return false;
    }
    record = record.subspan(static_cast<size_t>(size));
    size_ += static_cast<size_t>(size);
  }
  return true;
}

void LogFiles::drop_file(uint64_t number) {
  std::erase(files_, number);
  ::unlinkat(folder_.get(), cat(number).c_str(), 0);
}

}  // namespace hvd::launcher
