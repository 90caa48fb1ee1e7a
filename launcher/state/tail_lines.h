// Keeps the last lines of an output. Attach owns it. Pure.
#pragma once

#include <cstddef>
#include <deque>

#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

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
