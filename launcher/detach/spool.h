// Writes the output of a detached job to files of bounded size. A disk that is full costs the oldest
// output, then the newest, and never the job. OutputRecorder owns it, and calls it on its thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd::launcher {

struct SpoolLimits {
  size_t file_size = 1 << 20;  // a record that is larger has a file of its own
  size_t files = 64;
};

class Spool {
 public:
  // Makes the spool of this process, in the user's directory below `parent`. Removes an older one of
  // the same process id.
  static Result<std::unique_ptr<Spool>> make(const std::string& parent, SpoolLimits limits = {});

  void write(bool is_error, std::string_view lines);
  // Records the exit code of the job; no other call may follow.
  void end(int exit_code);

 private:
  Spool(UniqueFd folder, UniqueFd state, SpoolLimits limits)
      : folder_(std::move(folder)), state_(std::move(state)), limits_(limits) {}
  bool append(bool is_error, std::string_view lines);
  bool begin_file();
  bool write_all(ByteView record);
  void drop_file(uint64_t number);

  const UniqueFd folder_;
  const UniqueFd state_;  // a file that is locked while this process lives
  const SpoolLimits limits_;
  UniqueFd file_;               // newest file; empty after a write to it has failed
  size_t size_ = 0;             // bytes in file_
  std::deque<uint64_t> files_;  // numbers of the files on disk, ascending
  uint64_t next_ = 0;           // number of the next file
  size_t lost_ = 0;             // bytes that could not be written since the last record
  int error_ = 0;               // errno of the last failed write
};

}  // namespace hvd::launcher
