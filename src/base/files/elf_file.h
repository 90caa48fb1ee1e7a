// Reads what an ELF file needs of the machine that loads it: its processor, and the newest versions of the symbols of
// glibc and libstdc++. Pure: bytes that are no ELF file, or a damaged one, need nothing.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"

namespace hvd {

// The machine as `uname -m` prints it; empty for another file or an unknown machine.
std::string machine_of_elf(ByteView file);

// The newest version of a family of symbols that a program or shared object of 64 bits needs: "2.34" for "GLIBC_".
// Empty: it needs none.
std::string needed_version(ByteView file, std::string_view family);

// Compares versions such as 2.9 and 2.34, number by number.
bool is_older(std::string_view version, std::string_view than);

}  // namespace hvd
