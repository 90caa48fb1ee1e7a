#include "launcher/protocol/staged_parts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/text.h"

namespace hvd::launcher {

Result<std::optional<StagePart>> StagedParts::next(uint64_t until) {
  if (has_ended()) return std::optional<StagePart>();
  const StagedEntry& entry = entries_[index_];
  if (entry.size > 0) return next_of_file(entry, until);
  ++index_;
  return std::optional(StagePart{.kind = entry.kind,
                                 .mode = entry.kind == StageKind::kLink ? 0 : entry.mode,
                                 .path = entry.path,
                                 .bytes = entry.link});
}

Status StagedParts::open(const StagedEntry& entry) {
  // O_NONBLOCK: if a FIFO has replaced the file, open must not block the launcher.
  file_.reset(::open(entry.from.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!file_ || ::fstat(file_.get(), &info) != 0) {
    return system_error(cat(option_, ": cannot read ", entry.from.string()), errno);
  }
  if (!S_ISREG(info.st_mode)) {
    return failed_precondition(cat(option_, ": ", entry.from.string(),
                                   " is no longer a regular file; do not change the code while "
                                   "horovodrun copies it"));
  }
  left_ = entry.size;
  hash_ = {};
  return {};
}

// A file without a digest that became shorter after the listing ends early, and the agent finds a wrong digest of all.
Result<std::optional<StagePart>> StagedParts::next_of_file(const StagedEntry& entry,
                                                           uint64_t until) {
  if (read_ >= until) return std::optional<StagePart>();
  StagePart part{.kind = file_ ? StageKind::kMore : StageKind::kFile,
                 .mode = entry.mode,
                 .path = entry.path,
                 .bytes = {}};
  if (!file_) HVD_RETURN_IF_ERROR(open(entry));
  part.bytes.resize(std::min<uint64_t>({kMostStaged, left_, until - read_}));
  size_t done = 0;
  while (done < part.bytes.size()) {
    const ssize_t size = ::read(file_.get(), part.bytes.data() + done, part.bytes.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return system_error(cat(option_, ": cannot read ", entry.from.string()), errno);
    if (size == 0) break;
    done += static_cast<size_t>(size);
  }
  const bool is_short = done < part.bytes.size();
  part.bytes.resize(done);
  left_ -= done;
  read_ += done;
  if (entry.digest) hash_.add(as_bytes(part.bytes));
  if (left_ == 0 || is_short) {
    if (entry.digest && hash_.digest() != *entry.digest) {
      return failed_precondition(
          cat(option_, ": ", entry.path, " has changed since it was resolved: ", entry.remedy));
    }
    file_.reset();
    ++index_;
  }
  return std::optional(std::move(part));
}

}  // namespace hvd::launcher
