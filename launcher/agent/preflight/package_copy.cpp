#include "launcher/agent/preflight/package_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/files/elf_file.h"
#include "base/files/whole_io.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/protocol/package_list.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCopy = "horovod-package-";
// The prefix of the names of incomplete copies.
constexpr std::string_view kUnfinished = "horovod-copying-";
constexpr const char* kList = "list";
constexpr const char* kPacked = "packed";
constexpr const char* kContent = "content";
constexpr const char* kFiles = "files";
constexpr const char* kAdvice = "set HOROVOD_AGENT_DIR to a directory with free space";
constexpr std::string_view kGzip = "\x1f\x8b";
constexpr uint64_t kMostList = 1 << 20;

constexpr const char* kUnpack = R"sh(
if command -v gzip >/dev/null 2>&1; then exec gzip -dc <packed >content; fi
exec "${1:-python3}" -c 'import gzip, shutil
shutil.copyfileobj(gzip.open("packed"), open("content", "wb"))'
)sh";

std::string path_in(const std::string& folder, std::string_view name) {
  return cat(folder, "/", name);
}

// Returns the content of the file; nothing if the file is missing, is not a regular file, or is longer than `most`.
std::optional<std::string> read_file(const std::string& path, uint64_t most) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return {};
  if (static_cast<uint64_t>(about.st_size) > most) return {};
  const auto size = static_cast<size_t>(about.st_size);
  std::string text;
  text.reserve(size);
  if (!read_all(file.get(), text, size) || text.size() < size) return {};
  return text;
}

Status write_file(const std::string& path, std::string_view bytes, mode_t mode) {
  UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode & 0755));
  // On a network file system, close() reports a full disk.
  const bool is_good = file && write_all(file.get(), bytes) && ::close(file.release()) == 0;
  return is_good ? Status() : system_error(cat("cannot write ", path), errno);
}

bool is_cached_bytecode(const fs::path& path) {
  return path.extension() == ".pyc" && path.parent_path().filename() == "__pycache__";
}

// Returns whether no other user can change this entry of a copy. Ignores the modes of bytecode, which follow the umask
// of the user: only the user can enter the folder.
bool is_safe_entry(const fs::path& path) {
  struct stat about {};
  if (::lstat(path.c_str(), &about) != 0) return false;
  if (about.st_uid != ::geteuid() && about.st_uid != 0) return false;
  return path.filename() == "__pycache__" || is_cached_bytecode(path) ||
         (about.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool has_digest_of(const fs::path& path, const PackageFile& file) {
  const auto bytes = read_file(path.string(), file.size);
  return bytes && sha256(as_bytes(*bytes)) == file.digest;
}

// Returns whether the folder contains exactly the files of the list, besides bytecode that Python has added, and no
// other user can change them.
bool is_whole(const std::string& folder, const std::string& name) {
  const auto text = read_file(path_in(folder, kList), kMostList);
  if (!text || package_name(*text) != name) return false;
  const auto listed = parse_package_list(*text);
  if (!listed.ok()) return false;
  std::map<std::string, const PackageFile*> left;
  for (const PackageFile& file : *listed) left.emplace(file.path, &file);
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    // Skip bytecode: ranks of another job may write it, or an agent may remove it, at this time. find() removes
    // bytecode.
    if (at->path().filename() == "__pycache__") {
      at.disable_recursion_pending();
      continue;
    }
    if (!is_safe_entry(at->path())) return false;
    const std::string path = at->path().string().substr(folder.size() + 1);
    const bool is_folder = at->symlink_status(error).type() == fs::file_type::directory;
    if (is_folder || is_cached_bytecode(at->path()) || path == kList) continue;
    const auto file = left.find(path);
    if (file == left.end() || !has_digest_of(at->path(), *file->second)) return false;
    left.erase(file);
  }
  return !error && left.empty();
}

// The list has no hash of bytecode, and Python checks only the time and size of its source. Bytecode that a crash of
// the host has damaged must not reach a rank, so remove all bytecode. The first rank of a job writes it again.
void remove_bytecode(const std::string& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().filename() == "__pycache__") found.push_back(at->path());
  }
  for (const fs::path& each : found) fs::remove_all(each, error);
}

constexpr const char* kOldestPython = "3.8";
constexpr const char* kNone = "none";

std::string why_not(const std::string& found, const std::string& needed, const char* library,
                    const char* symbols) {
  if (needed.empty() || found.empty() || (found != kNone && !is_older(found, needed))) return {};
  if (found == kNone) {
    return cat("its Python has no ", library, ", and this horovodrun's package needs ", symbols,
               needed);
  }
  return cat("its ", library, " has ", symbols, found, ", and this horovodrun's package needs ",
             symbols, needed, " or newer");
}

}  // namespace

PackageCopy::PackageCopy() : folder_(kCopy, kUnfinished, kAdvice) {}

bool PackageCopy::find(const PackageOffer& offer, const std::vector<std::string>& folders) {
  name_ = offer.name;
  const auto check = [this](const std::string& path) { return is_whole(path, name_); };
  if (!folder_.find(name_, folders, check)) return false;
  remove_bytecode(folder());
  return true;
}

Status PackageCopy::expect(const PackageOffer& offer, const std::vector<std::string>& folders) {
  name_ = offer.name;
  // Space for the packed file, its content, and the unpacked files.
  const Status status = folder_.expect(name_, folders, offer.size * 5 / 2);
  if (status.ok()) return status;
  return failed_precondition(cat("no directory there can keep this horovodrun's package (",
                                 status.message(),
                                 "): name one by HOROVOD_AGENT_DIR, or install horovod there"));
}

std::optional<RankCommand> PackageCopy::unpacking(const std::string& python) const {
  const std::string packed = path_in(folder_.parts(), kPacked);
  std::string magic(kGzip.size(), '\0');
  std::ifstream(packed, std::ios::binary)
      .read(magic.data(), static_cast<std::streamsize>(magic.size()));
  if (magic != kGzip) return {};
  RankCommand command;
  command.path = "/bin/sh";
  command.arguments = {"sh", "-c", kUnpack, "sh", python};
  command.working_directory = folder_.parts();
  return command;
}

// Writes each file after comparing its bytes with the hash in the list.
Status PackageCopy::unpack(const std::string& list) const {
  HVD_ASSIGN_OR_RETURN(const std::vector<PackageFile> files, parse_package_list(list));
  const std::string& folder = folder_.parts();
  std::string content = path_in(folder, kContent);
  std::error_code error;
  if (!fs::exists(content, error)) content = path_in(folder, kPacked);
  const auto bytes = read_file(content, size_of_package(files));
  if (package_name(list) != name_ || !bytes || bytes->size() != size_of_package(files)) {
    return internal_error(
        "the package that arrived differs from the launcher's list: its files may have changed "
        "during the copy");
  }
  std::string_view left = *bytes;
  for (const PackageFile& file : files) {
    const std::string_view own = left.substr(0, file.size);
    left.remove_prefix(own.size());
    if (sha256(as_bytes(own)) != file.digest) {
      return internal_error(cat("the file ", file.path,
                                " of the package differs from the launcher's list: it may have "
                                "changed during the copy"));
    }
    const fs::path path = path_in(path_in(folder, kFiles), file.path);
    fs::create_directories(path.parent_path(), error);
    const Status status = write_file(path.string(), own, file.mode);
    if (!status.ok()) return {status.code(), cat(status.message(), "; ", kAdvice)};
  }
  return write_file(path_in(path_in(folder, kFiles), kList), list, 0644);
}

Status PackageCopy::install() {
  const std::string& folder = folder_.parts();
  const std::string list = read_file(path_in(folder, kList), kMostList).value_or("");
  const mode_t mask = ::umask(077);
  const Status status = unpack(list);
  ::umask(mask);
  HVD_RETURN_IF_ERROR(status);
  HVD_RETURN_IF_ERROR(folder_.keep(
      path_in(folder, kFiles), [this](const std::string& path) { return is_whole(path, name_); }));
  folder_.remove_parts();
  return {};
}

std::string PackageCopy::python_folder() const { return path_in(folder(), kPackagePython); }

std::string why_package_cannot_run(const PackageOffer& offer, const PythonFacts& facts) {
  std::string why;
  if (!offer.machine.empty() && !facts.machine.empty() && offer.machine != facts.machine) {
    why = cat("its processor is ", printable(facts.machine),
              ", and this horovodrun's package is for ", offer.machine);
  } else if (!facts.version.empty() && is_older(facts.version, kOldestPython)) {
    why = cat("its Python is ", printable(facts.version),
              ", and this horovodrun's package needs Python ", kOldestPython, " or newer");
  } else {
    why = why_not(facts.glibc, offer.glibc, "glibc", "version ");
    if (why.empty()) why = why_not(facts.glibcxx, offer.glibcxx, "libstdc++", "GLIBCXX_");
  }
  return why.empty() ? "" : cat(why, ": install horovod there, built for that host");
}

}  // namespace hvd::launcher
