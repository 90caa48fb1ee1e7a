// Reads an ELF file's requirements: the processor, and the newest symbol versions of glibc and libstdc++. Pure. A
// damaged file, or a file of another type, has no requirements.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"

namespace hvd {

// Returns the machine as `uname -m` prints it; empty for another file or an unknown machine.
std::string machine_of_elf(ByteView file);

// Returns the newest symbol version of a family that a 64-bit program or shared object needs: "2.34" for
// "GLIBC_". Empty if the file needs none.
std::string needed_version(ByteView file, std::string_view family);

// Compares versions, for example 2.9 and 2.34, number by number.
bool is_older(std::string_view version, std::string_view than);

}  // namespace hvd
