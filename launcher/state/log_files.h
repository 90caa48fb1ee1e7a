// Writes the output of a job to numbered files of bounded size in a folder. If the disk is full, the oldest output is
// lost first, then the newest, and the job continues. Calls may block for as long as the file system does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
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
  bool append(ByteView record);
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

// Removes the next lines from the front of a file's bytes, and returns them; nullopt if they are incomplete. After an
// error, the rest of the file is unreadable.
Result<std::optional<OutputChunk>> take_lines(std::string_view& bytes);

// Reads a job's output from the files that LogFiles writes, during the job and afterwards.
class LogReader {
 public:
  // `folder` must outlive this object.
  explicit LogReader(const UniqueFd& folder) : folder_(folder) {}

  // Returns the next lines, or nothing if all lines so far have been read.
  std::optional<OutputChunk> next();
  // Returns whether output before the first next() is missing, because it was removed to free space.
  bool begins_late() const { return begins_late_; }

 private:
  bool read_more();
  bool go_to_next_file();

  const UniqueFd& folder_;
  UniqueFd file_;
  int64_t number_ = -1;  // number of file_ in the folder
  std::string bytes_;    // bytes read but not yet taken, from position_ on
  size_t position_ = 0;
  bool is_damaged_ = false;  // the rest of file_ cannot be read
  bool has_gap_ = false;     // files between the previous file and this one are missing
  bool begins_late_ = false;
};

// Keeps the last lines of an output. show_last_lines() owns this object. Pure.
class TailLines {
 public:
  explicit TailLines(size_t most) : most_(most) {}

  void add(OutputChunk chunk);
  // Returns the number of added lines that are no longer among the last lines.
  size_t dropped() const { return dropped_; }
  // Returns the lines in order, and removes them.
  std::deque<OutputChunk> take();

 private:
  const size_t most_;
  std::deque<OutputChunk> pieces_;
  size_t lines_ = 0;  // number of lines in pieces_
  size_t dropped_ = 0;
};

// Counts the line ends in `text`: "\n", "\r" or "\r\n".
size_t count_lines(std::string_view text);

}  // namespace hvd::launcher
