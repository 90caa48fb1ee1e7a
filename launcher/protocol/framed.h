// A message as a single frame, for a connection without a queue of frames. Pure.
#pragma once

#include "base/bytes.h"
#include "launcher/protocol/protocol.h"
#include "net/frame.h"

namespace hvd::launcher {

inline Bytes framed(const Message& message) {
  net::FrameWriter writer;
  writer.put({}, encode(message), net::Urgency::kControl);
  return writer.take(1);
}

}  // namespace hvd::launcher
