#include "launcher/staged_code.h"

#include <cerrno>
#include <fstream>

#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPiece = 128 << 10;
// All hosts are sent from memory.
constexpr uint64_t kMost = uint64_t{1} << 30;

uint32_t mode_of(const fs::path& path) {
  std::error_code error;
  return static_cast<uint32_t>(fs::status(path, error).permissions()) & 0777;
}

bool is_below(const fs::path& relative) {
  return !relative.empty() && *relative.begin() != "..";
}

class Reader {
 public:
  explicit Reader(std::vector<StagePart>& parts) : parts_(parts) {}

  Status add(const fs::path& from, const fs::path& to) {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(from, error);
    if (error) return system_error(cat("--stage: ", from.string()), error.value());
    if (fs::is_symlink(status)) {
      put({.kind = StageKind::kLink, .path = to.string(),
           .bytes = fs::read_symlink(from, error).string()});
    } else if (fs::is_directory(status)) {
      put({.kind = StageKind::kDirectory, .mode = mode_of(from), .path = to.string(), .bytes = {}});
      for (fs::directory_iterator each(from, error), end; !error && each != end; each.increment(error)) {
        const fs::path name = each->path().filename();
        if (name != ".git" && name != "__pycache__") HVD_RETURN_IF_ERROR(add(each->path(), to / name));
      }
      if (error) return system_error(cat("--stage: ", from.string()), error.value());
    } else if (fs::is_regular_file(status)) {
      return add_file(from, to);
    }
    return {};
  }

  void put(StagePart part) {
    digest_ = next_digest(digest_, part);
    parts_.push_back(std::move(part));
  }
  void finish() {
    parts_.push_back({.kind = StageKind::kEnd, .path = {}, .bytes = std::string(as_text(digest_))});
  }

 private:
  Status add_file(const fs::path& from, const fs::path& to) {
    std::ifstream file(from, std::ios::binary);
    if (!file) return system_error(cat("--stage: cannot read ", from.string()), errno);
    StageKind kind = StageKind::kFile;
    for (;;) {
      std::string bytes(kPiece, '\0');
      file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      if (file.bad()) return system_error(cat("--stage: cannot read ", from.string()), errno);
      bytes.resize(static_cast<size_t>(file.gcount()));
      size_ += bytes.size();
      if (size_ > kMost) {
        return invalid_argument("--stage: more than 1 GiB: stage the code alone, and let data lie "
                                "where all hosts see it");
      }
      const bool is_last = bytes.size() < kPiece;
      if (kind == StageKind::kFile || !bytes.empty()) {
        put({.kind = kind, .mode = mode_of(from), .path = to.string(), .bytes = std::move(bytes)});
      }
      if (is_last) return {};
      kind = StageKind::kMore;
    }
  }

  std::vector<StagePart>& parts_;
  uint64_t size_ = 0;
  Digest digest_{};
};

}  // namespace

Result<std::shared_ptr<const StagedCode>> read_staged_code(const fs::path& what,
                                                           const fs::path& directory,
                                                           bool is_chosen) {
  std::error_code error;
  const fs::path from = fs::canonical(what, error);
  if (error) return system_error(cat("--stage: ", what.string()), error.value());
  fs::path here = fs::canonical(directory, error);
  if (error) here = directory;  // of the other hosts alone
  const bool is_directory = fs::is_directory(from);
  const fs::path within = here.lexically_relative(from);
  const fs::path below = from.lexically_relative(here);
  auto code = std::make_shared<StagedCode>();
  Reader reader(code->parts);
  fs::path to = ".";
  if (is_directory && is_below(within)) {
    code->working_directory = within.string();
  } else if (is_below(below)) {
    code->working_directory = ".";
    to = below;
  } else {
    code->working_directory = is_chosen ? directory.string() : ".";
    if (!is_directory) to = from.filename();
  }
  code->path = (is_directory ? to : to.parent_path()).string();
  if (to != ".") {
    fs::path parent;
    for (const fs::path& part : to.parent_path()) {
      parent /= part;
      reader.put({.kind = StageKind::kDirectory, .mode = 0700, .path = parent.string(), .bytes = {}});
    }
  }
  HVD_RETURN_IF_ERROR(reader.add(from, to));
  reader.finish();
  return std::shared_ptr<const StagedCode>(std::move(code));
}

}  // namespace hvd::launcher
