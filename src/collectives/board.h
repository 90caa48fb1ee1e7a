// Where ranks leave and find a few bytes before they have links: the job's store, seen from here.
#pragma once

#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"

namespace hvd::collectives {

class Board {
 public:
  virtual ~Board() = default;
  virtual Status set(std::string_view key, ByteView value) = 0;
  // Waits for the key until the deadline.
  virtual Result<Bytes> get(std::string_view key, Deadline deadline) = 0;
};

}  // namespace hvd::collectives
