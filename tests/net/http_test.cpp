#include "net/http.h"

#include <doctest/doctest.h>

#include <string>

namespace hvd::net {
namespace {

// Parses like a connection: new pieces arrive, and follow the bytes that were not consumed.
Status feed_all(HttpParser& parser, std::string_view text, size_t piece, size_t* used = nullptr) {
  size_t begin = 0, end = 0;
  while (!parser.done()) {
    const auto consumed = parser.feed(as_bytes(text.substr(begin, end - begin)));
    if (!consumed.ok()) return consumed.status();
    begin += *consumed;
    if (parser.done()) break;
    if (*consumed > 0 && begin < end) continue;
    if (end == text.size()) return unavailable("incomplete");
    end = std::min(text.size(), end + piece);
  }
  if (used != nullptr) *used = begin;
  return {};
}

constexpr char kPut[] =
    "PUT /v1/keys/a%2Fb HTTP/1.1\r\nhost: x\r\nAUTHORIZATION: HVD1 1\r\nContent-Length: 5\r\n\r\n"
    "12345";

}  // namespace

TEST_CASE("a request is the same in whatever pieces it arrives") {
  for (const size_t piece : {1, 2, 7, 1000}) {
    const auto parser = make_request_parser({});
    REQUIRE(feed_all(*parser, kPut, piece).ok());
    CHECK(parser->method() == "PUT");
    CHECK(parser->target() == "/v1/keys/a%2Fb");
    CHECK(parser->field("Authorization") == "HVD1 1");
    CHECK(parser->field("Absent").empty());
    CHECK(parser->keep_alive());
    CHECK(as_text(parser->take_body()) == "12345");
  }
}

TEST_CASE("feeding stops at the end of the head and at the end of the message") {
  const auto parser = make_request_parser({});
  const std::string two = std::string(kPut) + "GET / HTTP/1.1\r\n\r\n";
  const auto head = parser->feed(as_bytes(two));
  REQUIRE(head.ok());
  CHECK(*head == sizeof kPut - 1 - 5);
  CHECK(parser->head_done());
  CHECK_FALSE(parser->done());
  const auto body = parser->feed(as_bytes(std::string_view(two).substr(*head)));
  REQUIRE(body.ok());
  CHECK(*body == 5);
  CHECK(parser->done());
  parser->reset();
  size_t used = 0;
  CHECK(feed_all(*parser, std::string_view(two).substr(sizeof kPut - 1), 100, &used).ok());
  CHECK(parser->method() == "GET");
  CHECK(used == 18);
}

TEST_CASE("a malformed or too large request has the status to answer with") {
  const auto fault = [](const std::string& text, HttpLimits limits) {
    const auto parser = make_request_parser(limits);
    CHECK_FALSE(feed_all(*parser, text, 100).ok());
    return parser->fault();
  };
  CHECK(fault("no http at all\r\n\r\n", {}) == 400);
  CHECK(fault("GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", {}) == 400);
  CHECK(fault("GET / HTTP/1.1\r\nA: " + std::string(2000, 'a') + "\r\n\r\n",
              {.head_bytes = 1000}) == 431);
  CHECK(fault("GET / HTTP/1.1\r\nA: " + std::string(2000, 'a'), {.head_bytes = 1000}) == 431);
  // The first line and the fields together, at once, and each in a separate piece.
  const std::string long_line = "GET /" + std::string(600, 'a') + " HTTP/1.1\r\n";
  const std::string head = long_line + "A: " + std::string(600, 'a') + "\r\n\r\n";
  for (const size_t piece : {head.size(), long_line.size()}) {
    const auto parser = make_request_parser({.head_bytes = 1000});
    CHECK_FALSE(feed_all(*parser, head, piece).ok());
    CHECK(parser->fault() == 431);
  }
  CHECK(fault("PUT / HTTP/1.1\r\nContent-Length: 11\r\n\r\n12345678901", {.body_bytes = 10}) ==
        413);
  CHECK(fault("PUT / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", {}) != 0);
}

TEST_CASE("heads that are written are read back") {
  const std::string request = request_head("PUT", "/k", {{"Nonce", "1"}, {"Empty", ""}}, 2) + "hi";
  const auto parser = make_request_parser({});
  REQUIRE(feed_all(*parser, request, 1000).ok());
  CHECK(parser->field("Nonce") == "1");
  CHECK(request.find("Empty") == std::string::npos);

  const std::string response = response_head(404, {{"Hvd-Signature", "ab"}}, 3) + "no.";
  CHECK(response.starts_with("HTTP/1.1 404 Not Found\r\n"));
  const auto answer = make_response_parser({});
  REQUIRE(feed_all(*answer, response, 3).ok());
  CHECK(answer->status() == 404);
  CHECK(answer->field("hvd-signature") == "ab");
  CHECK(as_text(answer->take_body()) == "no.");
}

TEST_CASE("any bytes survive percent-encoding, and half an escape is refused") {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::string text = percent_encode(all);
  CHECK(text.find('/') == std::string::npos);
  CHECK(percent_decode(text).value_or("") == all);
  CHECK(percent_decode("%2f%2F").value_or("") == "//");
  for (const std::string bad : {"%", "%2", "%2x", "a%"}) CHECK_FALSE(percent_decode(bad).ok());
}

}  // namespace hvd::net
