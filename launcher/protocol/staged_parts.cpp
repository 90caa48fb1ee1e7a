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
  return {};
}

// If a file without a digest was truncated after the listing, its parts end early. The agent then finds a wrong digest.
Result<std::optional<StagePart>> StagedParts::next_of_file(const StagedEntry& entry,
                                                           uint64_t until) {
  if (read_ >= until) return std::optional<StagePart>();
  StagePart part{.kind = offset_ > 0 ? StageKind::kMore : StageKind::kFile,
                 .mode = entry.mode,
                 .path = entry.path,
                 .bytes = {}};
  const auto size = std::min<uint64_t>({kMostStaged, entry.size - offset_, until - read_});
  if (entry.text) {
    part.bytes = entry.text->substr(offset_, size);
  } else {
    if (offset_ == 0) HVD_RETURN_IF_ERROR(open(entry));
    HVD_ASSIGN_OR_RETURN(part.bytes, read(entry, size));
  }
  const bool is_short = part.bytes.size() < size;
  offset_ += part.bytes.size();
  read_ += part.bytes.size();
  if (entry.digest) hash_.add(as_bytes(part.bytes));
  if (offset_ == entry.size || is_short) {
    if (entry.digest && hash_.digest() != *entry.digest) {
      return failed_precondition(
          cat(option_, ": ", entry.path, " has changed since it was resolved: ", entry.remedy));
    }
    file_.reset();
    offset_ = 0;
    ++index_;
  }
  return std::optional(std::move(part));
}

Result<std::string> StagedParts::read(const StagedEntry& entry, size_t size) {
  std::string bytes(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t more = ::read(file_.get(), bytes.data() + done, size - done);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return system_error(cat(option_, ": cannot read ", entry.from.string()), errno);
    if (more == 0) break;
    done += static_cast<size_t>(more);
  }
  bytes.resize(done);
  return bytes;
}

Status add_digest(std::vector<StagedEntry>& entries, const std::string& option) {
  Digest digest{};
  StagedParts parts(entries, option);
  for (;;) {
    HVD_ASSIGN_OR_RETURN(const auto part, parts.next());
    if (!part) break;
    digest = next_digest(digest, *part);
  }
  entries.push_back({.kind = StageKind::kEnd, .link = std::string(as_text(digest))});
  return {};
}

}  // namespace hvd::launcher
