#include "launcher/agent/pmix_helper.h"

// The build defines the name of the file.
asm(".section .rodata\n"
    ".global hvd_pmix_program_begin\n"
    ".global hvd_pmix_program_end\n"
    "hvd_pmix_program_begin:\n"
    ".incbin \"" HVD_PMIX_PROGRAM
    "\"\n"
    "hvd_pmix_program_end:\n"
    ".byte 0\n"
    ".section .note.GNU-stack,\"\",@progbits\n"
    ".text\n");

extern "C" const char hvd_pmix_program_begin[];
extern "C" const char hvd_pmix_program_end[];

namespace hvd::launcher {

std::string_view pmix_program() {
  return {hvd_pmix_program_begin,
          static_cast<size_t>(hvd_pmix_program_end - hvd_pmix_program_begin)};
}

}  // namespace hvd::launcher
