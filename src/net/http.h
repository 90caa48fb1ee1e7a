// HTTP/1.1 messages without I/O: two incremental parsers with limits (by Beast, which only http.cpp
// includes), and formatting of heads. The rendezvous server and client call it. One caller at a time.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace hvd::net {

struct HttpLimits {
  size_t head_bytes = 16 * 1024;
  size_t body_bytes = 64 * 1024 * 1024;
};

struct HttpField {
  std::string_view name;
  std::string_view value;  // without line ends: the caller's promise
};

// One message after the other from a stream of bytes. Feeding stops at the end of the head, so
// that the caller can refuse a message before its body takes memory, and at the end of the body.
class HttpParser {
 public:
  virtual ~HttpParser() = default;

  // How many of the bytes were consumed. Give the rest again, with more behind it when neither
  // head_done nor done has become true. An error is final; fault() is the status to answer with.
  virtual Result<size_t> feed(ByteView bytes) = 0;
  virtual bool head_done() const = 0;
  virtual bool done() const = 0;
  virtual bool keep_alive() const = 0;
  // Empty when there is none. Valid until reset.
  virtual std::string_view field(std::string_view name) const = 0;
  virtual Bytes take_body() = 0;
  // Ready for the next message.
  virtual void reset() = 0;
  int fault() const { return fault_; }

 protected:
  int fault_ = 0;
};

class HttpRequestParser : public HttpParser {
 public:
  virtual std::string_view method() const = 0;
  virtual std::string_view target() const = 0;
};

class HttpResponseParser : public HttpParser {
 public:
  virtual int status() const = 0;
};

std::unique_ptr<HttpRequestParser> make_request_parser(HttpLimits limits);
std::unique_ptr<HttpResponseParser> make_response_parser(HttpLimits limits);

// The heads, with Content-Length and the empty line; the body goes behind.
std::string request_head(std::string_view method, std::string_view target,
                         std::initializer_list<HttpField> fields, size_t body_size);
std::string response_head(int status, std::initializer_list<HttpField> fields, size_t body_size);

// '/' too becomes %2F, so that any bytes are one segment of a path or one value of a query.
std::string percent_encode(std::string_view bytes);
Result<std::string> percent_decode(std::string_view text);

}  // namespace hvd::net
