#include "launcher/agent/plain_program.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <random>

namespace hvd::launcher {
namespace {

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a program of the C library alone is plain, and no other") {
  CHECK(is_plain_program("/bin/true", {"true"}));
  CHECK(!is_plain_program("/usr/bin/python3", {"python3"}));
  CHECK(!is_plain_program("/bin/sh", {"sh"}));
  CHECK(!is_plain_program("/bin/bash", {"bash"}));
  CHECK(!is_plain_program("/etc/passwd", {"passwd"}));
  CHECK(!is_plain_program("/nowhere/at/all", {"all"}));
}

TEST_CASE("a program that an argument could name is not known") {
  CHECK(!is_plain_program("/usr/bin/env", {"env", "./train"}));
  CHECK(!is_plain_program("/usr/bin/timeout", {"timeout", "60", "./train"}));
}

TEST_CASE("whatever the file holds, nothing outside of it is read") {
  const std::string whole = bytes_of("/bin/true");
  REQUIRE(needs_only_the_c_library(as_bytes(whole)));
  for (size_t size = 0; size < whole.size(); size += 1 + size / 8) {
    // A copy without room behind it, for what watches memory.
    const std::vector<char> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    (void)needs_only_the_c_library({reinterpret_cast<const std::byte*>(part.data()), size});
  }
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<char> spoilt(whole.begin(), whole.end());
    for (int k = 0; k < 4; ++k) spoilt[random() % 1024] = static_cast<char>(random());
    (void)needs_only_the_c_library(
        {reinterpret_cast<const std::byte*>(spoilt.data()), spoilt.size()});
  }
}

}  // namespace hvd::launcher
