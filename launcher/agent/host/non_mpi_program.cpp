#include "launcher/agent/host/non_mpi_program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/unique_fd.h"

namespace hvd::launcher {
namespace {

template <typename Record>
std::optional<Record> record_at(ByteView file, uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(Record)) return {};
  Record record;
  std::memcpy(&record, file.data() + offset, sizeof record);
  return record;
}

bool is_of_c(std::string_view library) {
  // The last ones are the loaders of x86-64, 64-bit ARM and RISC-V, and those of POWER and s390x.
  constexpr std::array<std::string_view, 10> kLibraries = {
      "libc.so",    "libm.so",     "libpthread.so", "libdl.so",  "librt.so",
      "libutil.so", "libgcc_s.so", "libstdc++.so",  "ld-linux-", "ld64.so"};
  return std::any_of(kLibraries.begin(), kLibraries.end(),
                     [&](std::string_view known) { return library.starts_with(known); });
}

// Returns the file offset of a virtual address.
std::optional<uint64_t> offset_of(uint64_t address, const std::vector<Elf64_Phdr>& segments) {
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
        address - segment.p_vaddr < segment.p_filesz) {
      return segment.p_offset + (address - segment.p_vaddr);
    }
  }
  return {};
}

}  // namespace

bool needs_only_the_c_library(ByteView file) {
  const auto header = record_at<Elf64_Ehdr>(file, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
      header->e_phentsize != sizeof(Elf64_Phdr)) {
    return false;
  }
  std::vector<Elf64_Phdr> segments;
  for (uint64_t i = 0; i < header->e_phnum; ++i) {
    const auto segment = record_at<Elf64_Phdr>(file, header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment) return false;
    segments.push_back(*segment);
  }
  const auto dynamic = std::find_if(segments.begin(), segments.end(),
                                    [](const Elf64_Phdr& one) { return one.p_type == PT_DYNAMIC; });
  if (dynamic == segments.end()) return true;  // a static executable
  std::vector<uint64_t> names;
  std::optional<uint64_t> texts;
  for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic->p_filesz; at += sizeof(Elf64_Dyn)) {
    const auto entry = record_at<Elf64_Dyn>(file, dynamic->p_offset + at);
    if (!entry) return false;
    if (entry->d_tag == DT_NULL) break;
    if (entry->d_tag == DT_NEEDED) names.push_back(entry->d_un.d_val);
    if (entry->d_tag == DT_STRTAB) texts = offset_of(entry->d_un.d_ptr, segments);
  }
  return texts && std::all_of(names.begin(), names.end(), [&](uint64_t name) {
           if (*texts > file.size() || name >= file.size() - *texts) return false;
           const ByteView rest = file.subspan(*texts + name);
           const auto* begin = reinterpret_cast<const char*>(rest.data());
           return is_of_c({begin, ::strnlen(begin, rest.size())});
         });
}

bool is_non_mpi_program(const std::string& path, const std::vector<std::string>& command) {
  if (command.size() != 1 || path.ends_with("sh") || path.ends_with("busybox")) return false;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) {
    return false;
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (memory == MAP_FAILED) return false;
  const bool is_non_mpi = needs_only_the_c_library({static_cast<const std::byte*>(memory), size});
  ::munmap(memory, size);
  return is_non_mpi;
}

}  // namespace hvd::launcher
