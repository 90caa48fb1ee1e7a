#include "launcher/spawn/last_words.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace hvd::launcher {
namespace {

TEST_CASE("last words are the last lines as one, without control characters") {
  LastWords words;
  words.add("one\r\n\n  two \n\x1b[31mthree\n");
  CHECK(words.last_lines() == "one; two; \\x1b[31mthree");
  CHECK(words.text() == words.last_lines());
  CHECK_FALSE(words.ended());
}

TEST_CASE("a good end adds nothing, a bad one does") {
  LastWords words;
  words.set_exit_code(0);
  CHECK(words.text().empty());
  words.set_exit_code(126);
  CHECK(words.text() == "ended with exit code 126");
  words.add("noexec\n");
  CHECK(words.text() == "noexec; ended with exit code 126");
}

TEST_CASE("a message that srun prints for each step of ours explains no end") {
  LastWords words;
  words.add("srun: cluster configuration lacks support for cpu binding\nsrun: error: a: gone\n");
  CHECK(words.last_lines() == "srun: error: a: gone");
}

TEST_CASE("a filter sees each line once, and removes lines before the output is cut") {
  std::vector<std::string> seen;
  LastWords words([&](std::string_view line) {
    seen.emplace_back(line);
    return !line.starts_with("debug");
  });
  words.add("one\ndeb");
  words.add("ug: x\ntwo");
  CHECK(words.last_lines() == "one; two");
  for (int i = 0; i < 1000; ++i) words.add("\ndebug: y");
  words.add("\nthree");
  CHECK(words.last_lines() == "one; two; three");
  CHECK(seen.size() == 1003);
  CHECK(seen[1] == "debug: x\n");
  words.add(std::string(10000, 'x') + "\nfour\n");
  CHECK(seen.back() == "four\n");
  CHECK(words.last_lines().ends_with("; four"));
}

TEST_CASE("one endless line is cut") {
  LastWords words;
  words.add(std::string(100000, 'x'));
  CHECK(words.last_lines().size() < 300);
}

}  // namespace
}  // namespace hvd::launcher
