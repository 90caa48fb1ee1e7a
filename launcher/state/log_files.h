// Writes the output of a job to numbered files of bounded size in a folder. If the disk is full, the oldest output is
// lost first, then the newest, and the job continues. Calls may block for as long as the file system does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "base/bytes.h"
#include "base/unique_fd.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

struct LogLimits {
  size_t file_size = 1 << 20;  // larger records have their own files
  size_t files = 64;
};

// The files are "0", "1" and so on, and contain records (protocol/record.h) of OutputChunk with whole lines.
class LogFiles {
 public:
  // `folder` must outlive this object.
  LogFiles(const UniqueFd& folder, LogLimits limits) : folder_(folder), limits_(limits) {}

  void write(const OutputChunk& lines);
  // If output was lost at the end, records the number of missing bytes.
  void finish();
  // Removes the oldest file, to free space. Returns false if no file remains.
  bool drop_oldest();
  // Begins a new folder. The number of its first file continues the sequence, so that readers detect missing output.
  void begin_again();

 private:
  bool append(const OutputChunk& lines);
  bool begin_file();
  bool write_all(ByteView record);
  void drop_file(uint64_t number);

  const UniqueFd& folder_;
  const LogLimits limits_;
  UniqueFd file_;               // newest file; closed after a failed write to it
  size_t size_ = 0;             // bytes in file_
  std::deque<uint64_t> files_;  // numbers of the files on disk, ascending
  uint64_t next_ = 0;           // number of the next file
  size_t lost_ = 0;             // bytes that could not be written since the last record
  int error_ = 0;               // errno of the last failed write
};

}  // namespace hvd::launcher
