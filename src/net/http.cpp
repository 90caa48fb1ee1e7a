#include "net/http.h"

#include <boost/beast/http.hpp>
#include <optional>

#include "base/check.h"
#include "base/text.h"

namespace hvd::net {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

// Beast's vector_body does not support std::byte.
struct BytesBody {
  using value_type = Bytes;

  class reader {
   public:
    template <bool kIsRequest, typename Fields>
    reader(http::header<kIsRequest, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<uint64_t>& length, error_code& error) {
      error = {};
      // The announced bytes may never arrive: reserve the first piece, and grow with the received bytes.
      if (length) body_.reserve(std::min<uint64_t>(*length, 256 * 1024));
    }
    template <typename Buffers>
    size_t put(const Buffers& buffers, error_code& error) {
      error = {};
      size_t size = 0;
      for (auto it = boost::asio::buffer_sequence_begin(buffers);
           it != boost::asio::buffer_sequence_end(buffers); ++it) {
        const boost::asio::const_buffer part = *it;
        const auto* data = static_cast<const std::byte*>(part.data());
        body_.insert(body_.end(), data, data + part.size());
        size += part.size();
      }
      return size;
    }
    void finish(error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

std::string_view to_view(boost::core::string_view text) { return {text.data(), text.size()}; }

template <bool kIsRequest, typename Base>
class BeastParser : public Base {
 public:
  explicit BeastParser(HttpLimits limits) : limits_(limits) { reset(); }

  Result<size_t> feed(ByteView bytes) override {
    size_t consumed = 0;
    const bool head_was_done = parser_->is_header_done();
    while (!parser_->is_done() && consumed < bytes.size()) {
      error_code error;
      const size_t count = parser_->put(
          boost::asio::const_buffer(bytes.data() + consumed, bytes.size() - consumed), error);
      consumed += count;
      // Beast may apply the limit to the first line and to the fields separately.
      if (!head_was_done && (head_bytes_ += count) > limits_.head_bytes) {
        return refuse(http::error::header_limit);
      }
      if (error == http::error::need_more) break;
      if (error) return refuse(error);
      if (!head_was_done && parser_->is_header_done()) break;
      if (count == 0) break;
    }
    return consumed;
  }
  bool head_done() const override { return parser_->is_header_done(); }
  bool done() const override { return parser_->is_done(); }
  bool keep_alive() const override { return parser_->keep_alive(); }
  std::string_view field(std::string_view name) const override {
    const auto found = parser_->get().find(boost::core::string_view(name.data(), name.size()));
    return found == parser_->get().end() ? std::string_view() : to_view(found->value());
  }
  Bytes take_body() override { return std::move(parser_->get().body()); }
  void reset() override {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(limits_.head_bytes));
    parser_->body_limit(limits_.body_bytes);
    head_bytes_ = 0;
    this->fault_ = 0;
  }

 protected:
  const auto& message() const { return parser_->get(); }

 private:
  Status refuse(const error_code& error) {
    if (error == http::error::header_limit) {
      this->fault_ = 431;
      return invalid_argument(
          cat("the head of the message is longer than ", limits_.head_bytes, " bytes"));
    }
    if (error == http::error::body_limit) {
      this->fault_ = 413;
      return invalid_argument(
          cat("the body of the message is longer than ", limits_.body_bytes, " bytes"));
    }
    this->fault_ = 400;
    return invalid_argument(cat("the message is not HTTP/1.1: ", error.message()));
  }

  HttpLimits limits_;
  size_t head_bytes_ = 0;  // parsed bytes of this message's head
  std::optional<http::parser<kIsRequest, BytesBody>> parser_;
};

class RequestParser final : public BeastParser<true, HttpRequestParser> {
 public:
  using BeastParser::BeastParser;
  std::string_view method() const override { return to_view(message().method_string()); }
  std::string_view target() const override { return to_view(message().target()); }
};

class ResponseParser final : public BeastParser<false, HttpResponseParser> {
 public:
  using BeastParser::BeastParser;
  int status() const override { return static_cast<int>(message().result_int()); }
};

// Bytes to reserve for a head, so that it does not move while it grows.
constexpr size_t kUsualHead = 320;

void finish_head(std::string& head, std::initializer_list<HttpField> fields, size_t body_size) {
  for (const HttpField& field : fields) {
    if (field.value.empty()) continue;
    HVD_CHECK(field.value.find('\r') == std::string_view::npos &&
              field.value.find('\n') == std::string_view::npos);
    head.append(field.name).append(": ").append(field.value).append("\r\n");
  }
  head.append("Content-Length: ").append(std::to_string(body_size)).append("\r\n\r\n");
}

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::unique_ptr<HttpRequestParser> make_request_parser(HttpLimits limits) {
  return std::make_unique<RequestParser>(limits);
}

std::unique_ptr<HttpResponseParser> make_response_parser(HttpLimits limits) {
  return std::make_unique<ResponseParser>(limits);
}

std::string request_head(std::string_view method, std::string_view target,
                         std::initializer_list<HttpField> fields, size_t body_size) {
  std::string head;
  head.reserve(kUsualHead);
  head.append(method).append(" ").append(target).append(" HTTP/1.1\r\n");
  finish_head(head, fields, body_size);
  return head;
}

std::string response_head(int status, std::initializer_list<HttpField> fields, size_t body_size) {
  std::string head;
  head.reserve(kUsualHead);
  const auto reason = http::obsolete_reason(static_cast<http::status>(status));
  head.append("HTTP/1.1 ")
      .append(std::to_string(status))
      .append(" ")
      .append(to_view(reason))
      .append("\r\n");
  finish_head(head, fields, body_size);
  return head;
}

std::string percent_encode(std::string_view bytes) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string text;
  text.reserve(bytes.size());
  for (const char c : bytes) {
    if (is_unreserved(c)) {
      text += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      text += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return text;
}

Result<std::string> percent_decode(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      bytes += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) return invalid_argument("a % is not followed by two hex digits");
    bytes += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return bytes;
}

}  // namespace hvd::net
