// Reads the output of a job that LogFiles writes, while it grows and afterwards.
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

// Takes the next lines off the front of a file's bytes; none while they are not whole. An error:
// nothing that follows in this file can be read.
Result<std::optional<OutputChunk>> take_lines(std::string_view& bytes);

class LogReader {
 public:
  // `folder`: outlives this object.
  explicit LogReader(const UniqueFd& folder) : folder_(folder) {}

  // The next lines; none when all has been read that is there.
  std::optional<OutputChunk> next();
  // Whether the oldest output was gone at the first next(), since there was no room for it.
  bool begins_late() const { return begins_late_; }

 private:
  bool read_more();
  bool go_to_next_file();

  const UniqueFd& folder_;
  UniqueFd file_;
  int64_t number_ = -1;  // number of file_ in the folder
  std::string bytes_;    // read, from position_ on not yet taken
  size_t position_ = 0;
  bool is_damaged_ = false;  // the rest of file_ cannot be read
  bool has_gap_ = false;     // files between the last one and this one are gone
  bool begins_late_ = false;
};

// Keeps the last lines of an output. Attach owns it. Pure.
class TailLines {
 public:
  explicit TailLines(size_t most) : most_(most) {}

  void add(OutputChunk chunk);
  // Lines that were added and are not among the last.
  size_t dropped() const { return dropped_; }
  // In their order; none of them stays.
  std::deque<OutputChunk> take();

 private:
  const size_t most_;
  std::deque<OutputChunk> pieces_;
  size_t lines_ = 0;  // in pieces_
  size_t dropped_ = 0;
};

// Lines that end in `text`, with "\n", "\r" or "\r\n".
size_t count_lines(std::string_view text);

}  // namespace hvd::launcher
