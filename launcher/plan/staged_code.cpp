#include "launcher/plan/staged_code.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

// More bytes are probably data, not code.
constexpr uint64_t kMost = uint64_t{1} << 30;

uint32_t mode_of(const fs::path& path) {
  std::error_code error;
  return static_cast<uint32_t>(fs::status(path, error).permissions()) & 0777;
}

bool is_environment(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / "pyvenv.cfg", ignored) ||
         fs::exists(directory / "conda-meta", ignored);
}

// Returns whether the copy omits this directory, because a program has created it for this machine. A Python
// environment, for example, may have gigabytes and does not work at another path.
bool is_left_out(const fs::directory_entry& entry) {
  std::error_code ignored;
  if (!entry.is_directory(ignored)) return false;
  const fs::path name = entry.path().filename();
  for (const char* const each : {".git", "__pycache__", "node_modules", ".tox"}) {
    if (name == each) return true;
  }
  return !entry.is_symlink(ignored) && is_environment(entry.path());
}

bool is_below(const fs::path& relative) { return !relative.empty() && *relative.begin() != ".."; }

class Collector {
 public:
  explicit Collector(StagedCode& code)
      : entries_(code.entries), left_out_(code.left_out), special_(code.special) {}

  // Adds the user's file or directory `from`; `to` is its path in the copy.
  Status add_all(const fs::path& from, const fs::path& to) {
    root_ = from;
    return add(from, to);
  }

 private:
  Status add(const fs::path& from, const fs::path& to) {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(from, error);
    if (error) return system_error(cat("--stage: ", from.string()), error.value());
    StagedEntry entry{.mode = mode_of(from), .path = to.string(), .from = from};
    if (fs::is_symlink(status)) {
      entry.kind = StageKind::kLink;
      entry.link = fs::read_symlink(from, error).string();
      entries_.push_back(std::move(entry));
    } else if (fs::is_directory(status)) {
      entry.kind = StageKind::kDirectory;
      entries_.push_back(std::move(entry));
      for (fs::directory_iterator each(from, error), end; !error && each != end;
           each.increment(error)) {
        const fs::path name = each->path().filename();
        if (from == root_) part_ = name.string();
        if (is_left_out(*each)) {
          left_out_.push_back({.path = (to / name).lexically_normal(), .from = each->path()});
        } else {
          HVD_RETURN_IF_ERROR(add(each->path(), to / name));
        }
      }
    } else if (fs::is_regular_file(status)) {
      entry.size = fs::file_size(from, error);
      size_ += error ? 0 : entry.size;
      parts_[part_] += error ? 0 : entry.size;
      entries_.push_back(std::move(entry));
    } else {
      special_.push_back(to.lexically_normal().string());
    }
    if (error) return system_error(cat("--stage: ", from.string()), error.value());
    if (size_ <= kMost) return {};
    const auto largest =
        std::ranges::max_element(parts_, {}, [](const auto& part) { return part.second; });
    const fs::path place = largest->first.empty() ? root_ : root_ / largest->first;
    return invalid_argument(cat("--stage: more than 1 GiB, of which ", largest->second >> 20,
                                " MiB or more are in ", printable(place.string()),
                                ": stage the code alone, and let data lie where all hosts see it"));
  }

  std::vector<StagedEntry>& entries_;
  std::vector<StagedCode::LeftOut>& left_out_;
  std::vector<std::string>& special_;
  fs::path root_;
  std::string part_;                       // the file or directory in root_ that is being read
  std::map<std::string, uint64_t> parts_;  // bytes of each part
  uint64_t size_ = 0;
};

// A path in --stage.
struct StagedSource {
  fs::path from;
  bool is_directory = false;
  fs::path within;  // the ranks' directory, if `from` contains it
  fs::path below;   // `from`, if the ranks' directory contains it
};

Result<StagedSource> find_source(const fs::path& what, const fs::path& here) {
  std::error_code error;
  StagedSource source;
  source.from = fs::canonical(what, error);
  if (error) return system_error(cat("--stage: ", what.string()), error.value());
  source.is_directory = fs::is_directory(source.from);
  if (!source.is_directory && !fs::is_regular_file(source.from)) {
    return invalid_argument(cat("--stage: ", what.string(), " is neither a file nor a directory"));
  }
  const fs::path within = here.lexically_relative(source.from);
  const fs::path below = source.from.lexically_relative(here);
  if (source.is_directory && is_below(within)) source.within = within;
  if (source.within.empty() && is_below(below)) source.below = below;
  return source;
}

void add_parents(const fs::path& path, std::vector<StagedEntry>& entries) {
  fs::path parent;
  for (const fs::path& part : path.parent_path()) {
    parent /= part;
    entries.push_back({.kind = StageKind::kDirectory, .mode = 0700, .path = parent.string()});
  }
}

// Keeps the first entry of each path: the user may name a directory and a file in it.
Status merge(std::vector<StagedEntry>& entries) {
  std::map<std::string, const StagedEntry*> first;
  std::vector<StagedEntry> kept;
  for (const StagedEntry& entry : entries) {
    const auto [found, is_new] =
        first.emplace(fs::path(entry.path).lexically_normal().string(), &entry);
    const StagedEntry& other = *found->second;
    if (is_new) {
      kept.push_back(entry);
    } else if (entry.kind != other.kind ||
               (entry.kind != StageKind::kDirectory && entry.from != other.from)) {
      return invalid_argument(cat("--stage: ", printable(other.from.string()), " and ",
                                  printable(entry.from.string()), " would both be ",
                                  printable(entry.path), " in the copy; stage one of them"));
    }
  }
  entries = std::move(kept);
  return {};
}

}  // namespace

Result<std::shared_ptr<const StagedCode>> read_staged_code(const std::vector<fs::path>& paths,
                                                           const fs::path& directory,
                                                           bool is_chosen) {
  std::error_code error;
  fs::path here = fs::canonical(directory, error);
  if (error) here = directory;  // the directory exists only on other hosts
  auto code = std::make_shared<StagedCode>();
  std::vector<StagedSource> sources;
  code->working_directory = is_chosen ? directory.string() : ".";
  for (const fs::path& path : paths) {
    HVD_ASSIGN_OR_RETURN(StagedSource source, find_source(path, here));
    if (!source.below.empty()) code->working_directory = ".";
    sources.push_back(std::move(source));
  }
  for (const StagedSource& source : sources) {
    if (!source.within.empty()) code->working_directory = source.within.string();
  }
  Collector collector(*code);
  for (const StagedSource& source : sources) {
    fs::path to = ".";
    if (!source.below.empty()) to = (code->working_directory / source.below).lexically_normal();
    if (source.below.empty() && !source.is_directory) to = source.from.filename();
    if (code->path.empty()) code->path = (source.is_directory ? to : to.parent_path()).string();
    if (to != ".") add_parents(to, code->entries);
    HVD_RETURN_IF_ERROR(collector.add_all(source.from, to));
  }
  if (paths.size() > 1) HVD_RETURN_IF_ERROR(merge(code->entries));
  HVD_RETURN_IF_ERROR(add_digest(code->entries, "--stage"));
  return std::shared_ptr<const StagedCode>(std::move(code));
}

std::string describe_special(const StagedCode& code) {
  if (code.special.empty()) return {};
  const size_t others = code.special.size() - 1;
  return cat("--stage leaves out ", printable(code.special.front()),
             others == 0 ? "" : cat(" and ", others, " more"),
             others == 0 ? ", which is a FIFO, a socket or a device"
                         : ", which are FIFOs, sockets or devices");
}

Status check_words(const StagedCode& code, const std::vector<std::string>& command) {
  for (const std::string& word : command) {
    // An absolute path is outside the copy.
    const fs::path path = (fs::path(code.working_directory) / word).lexically_normal();
    if (path.is_absolute()) continue;
    if (std::ranges::find(code.special, path.string()) != code.special.end()) {
      return invalid_argument(cat("--stage: ", printable(word),
                                  " is a FIFO, a socket or a device, which is not copied: name a "
                                  "file"));
    }
    for (const StagedCode::LeftOut& each : code.left_out) {
      const fs::path below = path.lexically_relative(each.path);
      std::error_code ignored;
      if (!is_below(below) || below == "." ||
          !fs::exists(fs::symlink_status(each.from / below, ignored))) {
        continue;
      }
      return invalid_argument(
          cat("--stage: ", printable(word), " lies in ", printable(each.from.string()), ", ",
              is_environment(each.from)
                  ? "an environment of Python, which is not copied: give the ranks its packages by "
                    "--stage-env, and name python3 or another Python of the hosts"
                  : "which is not copied: name a file outside of it"));
    }
  }
  return {};
}

}  // namespace hvd::launcher
