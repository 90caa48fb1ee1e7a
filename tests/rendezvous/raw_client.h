// A connection on which a test can send invalid requests, byte by byte.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "net/blocking_stream.h"
#include "net/http.h"
#include "net/resolve.h"
#include "rendezvous/running_server.h"
#include "rendezvous/wire/signature.h"

namespace hvd::rendezvous {

class RawClient {
 public:
  explicit RawClient(const net::Endpoint& endpoint) : stream_(connect(endpoint)) {}

  // Sends hello and derives the connection's key from this secret.
  RawClient& hello(const Secret& secret = test_secret()) {
    const std::string nonce = make_nonce();
    send(net::request_head("GET", "/v1/hello", {{"Hvd-Nonce", nonce}}, 0));
    REQUIRE(receive() == 200);
    key_.emplace(secret, nonce, parser_->field("Hvd-Nonce"));
    return *this;
  }
  std::string signed_head(uint64_t count, std::string_view method, std::string_view target,
                          std::string_view body = {}) const {
    const Digest digest = sha256(as_bytes(body));
    const Proof proof{count, digest, key_->sign_request(count, method, target, digest)};
    return net::request_head(method, target, {{"Authorization", to_string(proof)}}, body.size());
  }
  void send(std::string_view text) {
    bool interrupted = false;
    REQUIRE(stream_.write(as_bytes(text), {}, Deadline::after_seconds(200), interrupted).ok());
  }
  // Returns the status of the next response, or 0 if the connection ends.
  int receive() {
    parser_->reset();
    std::vector<std::byte> buffer(4096);
    for (;;) {
      for (size_t used = 1; used > 0 && !parser_->done();) {
        const auto consumed = parser_->feed(seen_);
        REQUIRE(consumed.ok());
        used = *consumed;
        seen_.erase(seen_.begin(), seen_.begin() + static_cast<std::ptrdiff_t>(used));
      }
      if (parser_->done()) break;
      const auto size = stream_.read_some(buffer, Deadline::after_seconds(200));
      if (!size.ok() || *size == 0) return 0;
      seen_.insert(seen_.end(), buffer.begin(),
                   buffer.begin() + static_cast<std::ptrdiff_t>(*size));
    }
    body_ = std::string(as_text(parser_->take_body()));
    return parser_->status();
  }
  // Returns the body of the last response.
  const std::string& body() const { return body_; }
  bool is_signed() const { return !parser_->field("Hvd-Signature").empty(); }
  int fd() const { return stream_.fd(); }
  bool ends() {
    std::byte byte;
    return stream_.read_some({&byte, 1}, Deadline::after_seconds(10)).value_or(0) == 0;
  }

 private:
  static net::BlockingStream connect(const net::Endpoint& endpoint) {
    const auto addresses = net::resolve(endpoint);
    REQUIRE(addresses.ok());
    auto stream = net::BlockingStream::connect(*addresses, Deadline::after_seconds(200));
    REQUIRE(stream.ok());
    return std::move(*stream);
  }

  net::BlockingStream stream_;
  std::unique_ptr<net::HttpResponseParser> parser_ = net::make_response_parser({});
  std::optional<SessionKey> key_;
  std::string body_;
  Bytes seen_;  // received, not yet parsed
};

}  // namespace hvd::rendezvous
