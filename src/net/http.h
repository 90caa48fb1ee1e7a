// HTTP/1.1 messages without I/O: two incremental parsers with limits, by Beast, and formatting of heads. One caller
// at a time.
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
  std::string_view value;  // must not contain line ends
};

// Parses one message after another from a stream of bytes. feed() stops at the end of the body, and
// also at the end of the head, so that the caller can refuse a message before its body takes memory.
class HttpParser {
 public:
  virtual ~HttpParser() = default;

  // Returns the number of consumed bytes. If neither head_done() nor done() has become true, the
  // caller passes the rest again, followed by new bytes. An error is final; fault() is the HTTP
  // status of the reply.
  virtual Result<size_t> feed(ByteView bytes) = 0;
  virtual bool head_done() const = 0;
  virtual bool done() const = 0;
  virtual bool keep_alive() const = 0;
  // Returns a field's value, empty without the field. The value is valid until reset().
  virtual std::string_view field(std::string_view name) const = 0;
  virtual Bytes take_body() = 0;
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

// Return the head of a message, with Content-Length and the empty line; the body follows it.
std::string request_head(std::string_view method, std::string_view target,
                         std::initializer_list<HttpField> fields, size_t body_size);
std::string response_head(int status, std::initializer_list<HttpField> fields, size_t body_size);

// percent_encode also escapes '/' as %2F, so that any bytes form one path segment or one query
// value.
std::string percent_encode(std::string_view bytes);
Result<std::string> percent_decode(std::string_view text);

}  // namespace hvd::net
