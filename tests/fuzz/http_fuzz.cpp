// Any bytes on a connection, in pieces of any size: both parsers keep their limits and return the
// same messages for whole input and byte by byte. (The pieces decide whether a malformed head is
// refused at its first wrong byte or at its end.)
#include <string>

#include "base/text.h"
#include "fuzz/target.h"
#include "net/http.h"

namespace {

constexpr hvd::net::HttpLimits kLimits{.head_bytes = 512, .body_bytes = 256};

// Returns the messages of a stream as text, each parsed like on a connection.
std::string parsed(hvd::net::HttpParser& parser, hvd::ByteView bytes, size_t piece) {
  std::string seen;
  size_t begin = 0, end = 0;
  for (;;) {
    const auto consumed = parser.feed(bytes.subspan(begin, end - begin));
    if (!consumed.ok()) {
      HVD_CHECK(parser.fault() == 400 || parser.fault() == 413 || parser.fault() == 431);
      return seen;
    }
    HVD_CHECK(*consumed <= end - begin);
    begin += *consumed;
    if (parser.done()) {
      const hvd::Bytes body = parser.take_body();
      HVD_CHECK(body.size() <= kLimits.body_bytes);
      seen += hvd::cat(parser.keep_alive(), ' ', parser.field("Content-Length"), ' ', body.size(),
                       '\n');
      parser.reset();
      continue;
    }
    if (*consumed > 0 && begin < end) continue;
    if (end == bytes.size()) return seen;
    end = std::min(bytes.size(), end + piece);
  }
}

}  // namespace

HVD_FUZZ_TARGET(http) {
  HVD_CHECK(parsed(*hvd::net::make_request_parser(kLimits), bytes, size + 1) ==
            parsed(*hvd::net::make_request_parser(kLimits), bytes, 1));
  HVD_CHECK(parsed(*hvd::net::make_response_parser(kLimits), bytes, size + 1) ==
            parsed(*hvd::net::make_response_parser(kLimits), bytes, 1));
  (void)hvd::net::percent_decode(hvd::as_text(bytes));
}
