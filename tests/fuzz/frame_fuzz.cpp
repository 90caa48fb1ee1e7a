// Any bytes on a link, in pieces of any size: the parser neither reads past them nor buffers more
// than the limit, and gives the same result for whole input and byte by byte.
#include <string>

#include "base/text.h"
#include "fuzz/target.h"
#include "net/frame.h"

namespace {

std::string parsed(hvd::ByteView bytes, size_t piece) {
  hvd::net::FrameParser parser(4096);
  std::string seen;
  while (!bytes.empty()) {
    const size_t size = std::min(piece, bytes.size());
    parser.feed(bytes.first(size));
    bytes = bytes.subspan(size);
    for (;;) {
      const auto frame = parser.next();
      if (!frame.ok()) return seen + "failed";
      if (!frame->has_value()) break;
      const auto& header = (*frame)->header;
      seen += hvd::cat(static_cast<int>(header.type), ' ', header.job, ' ', header.generation, ' ',
                       header.host, ' ', header.stream, ' ', header.credit, ' ',
                       (*frame)->payload.size(), '\n');
    }
  }
  return seen;
}

}  // namespace

HVD_FUZZ_TARGET(frame) { HVD_CHECK(parsed(bytes, size + 1) == parsed(bytes, 1)); }
