#include "base/files/elf_file.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/text.h"

namespace hvd {
namespace {

template <typename T>
std::optional<T> read_at(ByteView file, uint64_t at) {
  if (at > file.size() || file.size() - at < sizeof(T)) return {};
  T value;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

std::string_view text_at(ByteView file, uint64_t at) {
  if (at >= file.size()) return {};
  const std::string_view rest = as_text(file.subspan(at));
  return rest.substr(0, rest.find('\0'));
}

std::optional<Elf64_Ehdr> header_of(ByteView file) {
  const auto header = read_at<Elf64_Ehdr>(file, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return {};
  return header;
}

// File offsets of the tables in which the dynamic loader finds the symbol versions.
struct VersionTables {
  uint64_t needs = 0;
  uint64_t names = 0;
};

class Segments {
 public:
  Segments(ByteView file, const Elf64_Ehdr& header) {
    for (uint64_t index = 0; index < header.e_phnum; ++index) {
      const auto each = read_at<Elf64_Phdr>(file, header.e_phoff + index * sizeof(Elf64_Phdr));
      if (each) all_.push_back(*each);
    }
  }
  const Elf64_Phdr* find(uint32_t type) const {
    const auto found = std::ranges::find(all_, type, &Elf64_Phdr::p_type);
    return found == all_.end() ? nullptr : &*found;
  }
  // Returns the file offset of a memory address, or 0.
  uint64_t offset_of(uint64_t address) const {
    for (const Elf64_Phdr& each : all_) {
      if (each.p_type != PT_LOAD || address < each.p_vaddr) continue;
      if (address - each.p_vaddr < each.p_filesz) return address - each.p_vaddr + each.p_offset;
    }
    return 0;
  }

 private:
  std::vector<Elf64_Phdr> all_;
};

VersionTables find_tables(ByteView file) {
  VersionTables tables;
  const auto header = header_of(file);
  if (!header || header->e_ident[EI_CLASS] != ELFCLASS64) return tables;
  const Segments segments(file, *header);
  const Elf64_Phdr* const dynamic = segments.find(PT_DYNAMIC);
  if (dynamic == nullptr) return tables;
  for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic->p_filesz; at += sizeof(Elf64_Dyn)) {
    const auto entry = read_at<Elf64_Dyn>(file, dynamic->p_offset + at);
    if (!entry || entry->d_tag == DT_NULL) break;
    if (entry->d_tag == DT_VERNEED) tables.needs = segments.offset_of(entry->d_un.d_ptr);
    if (entry->d_tag == DT_STRTAB) tables.names = segments.offset_of(entry->d_un.d_ptr);
  }
  return tables;
}

}  // namespace

std::string machine_of_elf(ByteView file) {
  const auto header = header_of(file);
  if (!header) return {};
  switch (header->e_machine) {
    case EM_X86_64:
      return "x86_64";
    case EM_AARCH64:
      return "aarch64";
    case EM_PPC64:
      return "ppc64le";
    case EM_S390:
      return "s390x";
    case EM_RISCV:
      return "riscv64";
    default:
      return {};
  }
}

bool is_older(std::string_view version, std::string_view than) {
  const auto numbers_of = [](std::string_view text) {
    std::vector<int64_t> numbers;
    for (const std::string& each : split(text, '.')) {
      numbers.push_back(parse_int(each).value_or(0));
    }
    return numbers;
  };
  return numbers_of(version) < numbers_of(than);
}

std::string needed_version(ByteView file, std::string_view family) {
  const VersionTables tables = find_tables(file);
  std::string newest;
  // Each entry must follow the previous one in the file, so the loop ends.
  for (uint64_t at = tables.needs; at != 0 && tables.names != 0;) {
    const auto library = read_at<Elf64_Verneed>(file, at);
    if (!library) break;
    for (uint64_t aux = at + library->vn_aux;;) {
      const auto version = read_at<Elf64_Vernaux>(file, aux);
      if (!version) break;
      const std::string_view name = text_at(file, tables.names + version->vna_name);
      if (name.starts_with(family)) {
        const std::string_view number = name.substr(family.size());
        const bool is_number = !number.empty() && number[0] >= '0' && number[0] <= '9';
        if (is_number && is_older(newest, number)) newest = number;
      }
      if (version->vna_next == 0) break;
      aux += version->vna_next;
    }
    if (library->vn_next == 0) break;
    at += library->vn_next;
  }
  return newest;
}

}  // namespace hvd
