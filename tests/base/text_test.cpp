#include "base/text.h"

#include <doctest/doctest.h>

namespace hvd {

TEST_CASE("split keeps empty parts and join undoes it") {
  const auto parts = split("a,,b", ',');
  CHECK(parts == std::vector<std::string>{"a", "", "b"});
  CHECK(join(parts, ",") == "a,,b");
  CHECK(split("", ',').size() == 1);
}

TEST_CASE("numbers are taken whole or not at all") {
  CHECK(parse_int("42") == 42);
  CHECK(parse_int("-1") == -1);
  CHECK_FALSE(parse_int("4x").has_value());
  CHECK_FALSE(parse_int("").has_value());
  CHECK_FALSE(parse_int("99999999999999999999").has_value());
  CHECK(parse_double("2.5") == 2.5);
}

TEST_CASE("the nearest word is found, a far one is not") {
  const std::vector<std::string> known{"--verbose", "--version", "--hosts"};
  CHECK(nearest("--verbos", known) == "--verbose");
  CHECK(nearest("--hots", known) == "--hosts");
  CHECK(nearest("--zebra-crossing", known).empty());
}

TEST_CASE("the edit distance counts letters that are added, removed and replaced") {
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("TRESHOLD", "THRESHOLD") == 1);
  CHECK(edit_distance("LEVLE", "LEVEL") == 2);
  CHECK(edit_distance("", "abc") == 3);
}

TEST_CASE("one_line joins the lines of a text, and leaves out the middle of many") {
  CHECK(one_line("first\n\n  second \n") == "first; second");
  CHECK(one_line("alone") == "alone");
  CHECK(one_line("\n") == "");
  CHECK(one_line("1\n2\n3\n4\n5\n6\n7\n8\n") == "1; 2; 3; ...; 7; 8");
  CHECK(one_line("1\n2\n3\n4\n5\n6") == "1; 2; 3; 4; 5; 6");
}

TEST_CASE("shell_quote survives every quote") {
  CHECK(shell_quote("a/b-c") == "a/b-c");
  CHECK(shell_quote("it's") == "'it'\\''s'");
  CHECK(shell_quote("") == "''");
}

TEST_CASE("printable shows control characters as escapes and cuts long text") {
  CHECK(printable("a\nb") == "a\\x0ab");
  CHECK(printable("\xc2\x9b\x33m\xc2\xa0\xc3\xa4") == "\\xc2\\x9b3m\xc2\xa0\xc3\xa4");
  CHECK(printable("a\xe2\x80\xae\x62\xe2\x82\xac") == "a\\xe2\\x80\\xaeb\xe2\x82\xac");
  CHECK(printable("\xe2\x81\xa6x\xd8\x9c\xc2") == "\\xe2\\x81\\xa6x\\xd8\\x9c\xc2");
  CHECK(printable(std::string(300, 'x'), 5) == "xxxxx...");
  CHECK(printable("\xc3\xa4\xe2\x82\xac\xc3\xa4", 4) == "\xc3\xa4...");
  CHECK(printable("\xc3\xa4\xe2\x82\xac\xc3\xa4", 5) == "\xc3\xa4\xe2\x82\xac...");
}

TEST_CASE("front_of leaves out a part of a character") {
  const std::string text = "x\xe2\x82\xac\xc3\xa4";
  CHECK(front_of(text, 6) == text);
  CHECK(front_of(text, 5) == "x\xe2\x82\xac");
  CHECK(front_of(text, 4) == "x\xe2\x82\xac");
  CHECK(front_of(text, 3) == "x");
  CHECK(front_of(text, 2) == "x");
  CHECK(front_of(text, 0).empty());
  CHECK(front_of(std::string(300, '\x80'), 100).size() >= 96);
}

}  // namespace hvd
