#include "base/files/elf_file.h"

#include <doctest/doctest.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <fstream>
#include <iterator>
#include <string>

using namespace hvd;

namespace {

std::string own_program() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("versions are compared number by number") {
  CHECK(is_older("2.9", "2.34"));
  CHECK(is_older("2.34", "2.34.1"));
  CHECK(is_older("", "2.2"));
  CHECK_FALSE(is_older("2.34", "2.34"));
  CHECK_FALSE(is_older("3.0", "2.34"));
}

TEST_CASE("a program needs this machine's processor and no newer libraries than it has") {
  const std::string program = own_program();
  utsname machine{};
  REQUIRE(::uname(&machine) == 0);
  CHECK(machine_of_elf(as_bytes(program)) == machine.machine);
  const std::string glibc = needed_version(as_bytes(program), "GLIBC_");
  CHECK(is_older("2.1", glibc));
  CHECK_FALSE(is_older(gnu_get_libc_version(), glibc));
  CHECK(needed_version(as_bytes(program), "NO_SUCH_FAMILY_").empty());
}

TEST_CASE("other bytes need nothing") {
  const std::string program = own_program();
  CHECK(machine_of_elf(as_bytes("#!/bin/sh\n")).empty());
  CHECK(needed_version(as_bytes("#!/bin/sh\n"), "GLIBC_").empty());
  CHECK(needed_version({}, "GLIBC_").empty());
  // Truncated files: within the headers, and before the tables.
  for (size_t size = 1; size < 4096; size += 7) {
    CHECK(needed_version(as_bytes(program).first(size), "GLIBC_").empty());
  }
}
