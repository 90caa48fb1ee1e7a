// Reads the output of a job that LogFiles writes, during the job and afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

// Removes the next lines from the front of a file's bytes, and returns these lines; none if they are incomplete. After
// an error, the rest of the file is unreadable.
Result<std::optional<OutputChunk>> take_lines(std::string_view& bytes);

class LogReader {
 public:
  // `folder` must outlive this object.
  explicit LogReader(const UniqueFd& folder) : folder_(folder) {}

  // Returns the next lines, or nothing if all lines so far have been read.
  std::optional<OutputChunk> next();
  // Returns whether the oldest output was removed before the first next(), because of a lack of space.
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

// Keeps the last lines of an output. Attach owns this object. Pure.
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
