// Writes the output of a job to numbered files of bounded size in a folder. A disk that is full costs the oldest
// output, then the newest, and never the job. Calls may block for as long as the file system does.
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
  size_t file_size = 1 << 20;  // a record that is larger has a file of its own
  size_t files = 64;
};

// The files are "0", "1" and so on, and hold records (protocol/record.h) of OutputChunk, whole lines each.
class LogFiles {
 public:
  // `folder`: outlives this object.
  LogFiles(const UniqueFd& folder, LogLimits limits) : folder_(folder), limits_(limits) {}

  void write(const OutputChunk& lines);
  // Says how many bytes are missing at the end, if any are.
  void finish();
  // Removes the oldest file: what else is to be written needs the room. False when there is none.
  bool drop_oldest();
  // The folder is a new one. Its first file has the number that follows, so that readers see that output is missing.
  void begin_again();

 private:
  bool append(const OutputChunk& lines);
  bool begin_file();
  bool write_all(ByteView record);
  void drop_file(uint64_t number);

  const UniqueFd& folder_;
  const LogLimits limits_;
  UniqueFd file_;               // newest file; empty after a write to it has failed
  size_t size_ = 0;             // bytes in file_
  std::deque<uint64_t> files_;  // numbers of the files on disk, ascending
  uint64_t next_ = 0;           // number of the next file
  size_t lost_ = 0;             // bytes that could not be written since the last record
  int error_ = 0;               // errno of the last failed write
};

}  // namespace hvd::launcher
