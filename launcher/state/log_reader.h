// Reads the output of a job that LogFiles writes, while it grows and afterwards.
#pragma once

#include <cstdint>
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

}  // namespace hvd::launcher
