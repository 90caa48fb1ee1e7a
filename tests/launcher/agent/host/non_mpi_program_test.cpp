#include "launcher/agent/host/non_mpi_program.h"

#include <doctest/doctest.h>
#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

namespace hvd::launcher {
namespace {

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A program that needs one library of this name in place of libc; empty where none can be made.
std::string with_library(std::string program, const std::string& name) {
  Elf64_Ehdr header;
  std::memcpy(&header, program.data(), sizeof header);
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, program.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type != PT_DYNAMIC) continue;
    for (uint64_t at = segment.p_offset; at < segment.p_offset + segment.p_filesz;
         at += sizeof(Elf64_Dyn)) {
      Elf64_Dyn entry;
      std::memcpy(&entry, program.data() + at, sizeof entry);
      const size_t old = program.find(std::string_view("libc.so.6\0", 10));
      if (entry.d_tag != DT_NEEDED || old == std::string::npos) continue;
      // Names lie as far from each other in the file as in the table of names.
      entry.d_un.d_val += program.size() - old;
      std::memcpy(program.data() + at, &entry, sizeof entry);
      return program + name + std::string(1, '\0');
    }
  }
  return {};
}

}  // namespace

TEST_CASE("a program of the C library alone is no MPI program, any other may be") {
  CHECK(is_non_mpi_program("/bin/true", {"true"}));
  CHECK(!is_non_mpi_program("/usr/bin/python3", {"python3"}));
  CHECK(!is_non_mpi_program("/bin/sh", {"sh"}));
  CHECK(!is_non_mpi_program("/bin/bash", {"bash"}));
  CHECK(!is_non_mpi_program("/etc/passwd", {"passwd"}));
  CHECK(!is_non_mpi_program("/nowhere/at/all", {"all"}));
}

TEST_CASE("a program that an argument could name is not known") {
  CHECK(!is_non_mpi_program("/usr/bin/env", {"env", "./train"}));
  CHECK(!is_non_mpi_program("/usr/bin/timeout", {"timeout", "60", "./train"}));
}

TEST_CASE("the loader of each machine belongs to the C library, and other libraries do not") {
  const std::string whole = bytes_of("/bin/true");
  for (const char* name : {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
                           "ld-linux-riscv64-lp64d.so.1", "ld64.so.2", "libc.so.6"}) {
    CAPTURE(name);
    const std::string program = with_library(whole, name);
    REQUIRE(!program.empty());
    CHECK(needs_only_the_c_library(as_bytes(program)));
  }
  for (const char* name : {"libz.so.1", "ld.so.1", "libcrypto.so.3"}) {
    CAPTURE(name);
    const std::string program = with_library(whole, name);
    REQUIRE(!program.empty());
    CHECK(!needs_only_the_c_library(as_bytes(program)));
  }
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
