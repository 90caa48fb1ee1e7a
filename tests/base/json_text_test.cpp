#include "base/json_text.h"

#include <doctest/doctest.h>

using namespace hvd;

TEST_CASE("text is escaped for JSON, and what is no text is replaced") {
  CHECK(json_escaped("a\"b\\c\n\x01\x7f") == "a\\\"b\\\\c\\n\\u0001\x7f");
  CHECK(json_escaped("\xff\xc3\xa4\xed\xa0\x80") == "\\ufffd\xc3\xa4\\ufffd\\ufffd\\ufffd");
  CHECK(json_escaped("\xf0\x9f\x98\x80\xf0\x9f") == "\xf0\x9f\x98\x80\\ufffd\\ufffd");
}

TEST_CASE("text of several bytes a character is text; what only looks like it is none") {
  CHECK(is_utf8(""));
  CHECK(is_utf8("\u00e4\u20ac\U0001f600"));
  for (const std::string_view bytes : {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82",
                                       "\x80", "\xf5\x80\x80\x80", "\xe0\x80\x80"}) {
    CHECK_FALSE(is_utf8(bytes));
  }
}

TEST_CASE("bytes become base64 and come back") {
  for (const auto& [bytes, text] : {std::pair<std::string_view, std::string>{"", ""},
                                    {"a", "YQ=="},
                                    {"ab", "YWI="},
                                    {"abc", "YWJj"},
                                    {"abcd", "YWJjZA=="},
                                    {std::string_view("\xff\x00\xfe", 3), "/wD+"}}) {
    CHECK(to_base64(bytes) == text);
    const auto back = from_base64(text);
    REQUIRE(back.ok());
    CHECK(*back == bytes);
  }
}

TEST_CASE("text that is no base64 is refused") {
  for (const char* text : {"Zg=", "Zg", "Z===", "Zh==", "Zm9", "Zm9v\n", "Z g=", "Zg==Zg==", "=",
                           "====", " Zg==", "Zm9v    "}) {
    CAPTURE(text);
    CHECK_FALSE(from_base64(text).ok());
  }
}
