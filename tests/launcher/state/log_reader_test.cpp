#include <doctest/doctest.h>

#include <string>

#include "base/text.h"
#include "launcher/state/log_files.h"

namespace hvd::launcher {
namespace {

std::string text_of(TailLines& tail) {
  std::string text;
  for (const OutputChunk& said : tail.take())
    text += cat(said.is_error != 0 ? "!" : "", said.bytes);
  return text;
}

}  // namespace

TEST_CASE("the last lines of both streams stay, in their order") {
  TailLines tail(3);
  tail.add({.bytes = "1\n2\n"});
  CHECK(text_of(tail) == "1\n2\n");
  tail.add({.bytes = "1\n2\n3\n4\n5\n"});
  CHECK(tail.dropped() == 2);
  CHECK(text_of(tail) == "3\n4\n5\n");
  tail.add({.bytes = "1\n2\n"});
  tail.add({.is_error = 1, .bytes = "3\n"});
  tail.add({.bytes = "4\n"});
  CHECK(tail.dropped() == 3);
  CHECK(text_of(tail) == "2\n!3\n4\n");
}

TEST_CASE("a progress bar's line counts once, and an unfinished line does not") {
  CHECK(count_lines("") == 0);
  CHECK(count_lines("a\rb\r\nc\nd") == 3);
  TailLines tail(2);
  tail.add({.bytes = "a\rb\r\nc\r\nd"});
  CHECK(text_of(tail) == "b\r\nc\r\nd");
}

}  // namespace hvd::launcher
