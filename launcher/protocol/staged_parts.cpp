#include "launcher/protocol/staged_parts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/files/whole_io.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr size_t kSizeBytes = sizeof(uint32_t);
// Space for the bytes of a part, and for its path.
constexpr size_t kMostRecord = kMostStaged + (8 << 10);

std::string_view raw(const uint64_t& number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

Proof prove(const Digest& key, const PartNonces& nonces) {
  return HmacKey(key).sign(
      {"horovod part request 1", as_text(nonces.of_server), as_text(nonces.of_client)});
}

}  // namespace

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
  std::string bytes;
  if (read_all(file_.get(), bytes, size)) return bytes;
  return system_error(cat(option_, ": cannot read ", entry.from.string()), errno);
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

Bytes make_part_request(const Digest& key, const PartNonces& nonces) {
  ByteWriter request;
  request.put_raw(nonces.of_client).put_raw(prove(key, nonces));
  return request.take();
}

std::optional<Nonce> check_part_request(const Digest& key, const Nonce& of_server,
                                        ByteView request) {
  if (request.size() != kRequestSize) return {};
  Nonce of_client;
  Proof proof;
  std::ranges::copy(request.first(sizeof of_client), of_client.begin());
  std::ranges::copy(request.last(sizeof proof), proof.begin());
  if (!is_same(proof, prove(key, {of_server, of_client}))) return {};
  return of_client;
}

HmacKey part_key(const Digest& key, const PartNonces& nonces) {
  return HmacKey(HmacKey(key).sign(
      {"horovod part tag 1", as_text(nonces.of_server), as_text(nonces.of_client)}));
}

Bytes PartSealer::seal(const StagePart& part) {
  const Bytes content = encode(part);
  const size_t size = content.size() + sizeof(Digest);
  HVD_CHECK(size <= kMostRecord);
  const Digest tag = key_.sign({raw(records_++), as_text(content)});
  ByteWriter record;
  record.put(static_cast<uint32_t>(size)).put_raw(content).put_raw(tag);
  return record.take();
}

void PartOpener::feed(ByteView bytes) { buffer_.insert(buffer_.end(), bytes.begin(), bytes.end()); }

Result<std::optional<StagePart>> PartOpener::next() {
  if (buffer_.size() < kSizeBytes) return std::optional<StagePart>();
  const size_t size = ByteReader(buffer_).get<uint32_t>();
  if (size < sizeof(Digest) || size > kMostRecord) {
    return invalid_argument(cat("a record of parts has ", size, " bytes"));
  }
  if (buffer_.size() < kSizeBytes + size) return std::optional<StagePart>();
  const ByteView record = ByteView(buffer_).subspan(kSizeBytes, size);
  const ByteView content = record.first(size - sizeof(Digest));
  Digest tag;
  std::ranges::copy(record.last(sizeof tag), tag.begin());
  if (!is_same(tag, key_.sign({raw(records_), as_text(content)}))) {
    return invalid_argument("a record of parts has a wrong tag");
  }
  ++records_;
  HVD_ASSIGN_OR_RETURN(Message message, decode(content));
  auto* const part = std::get_if<StagePart>(&message);
  if (part == nullptr) return invalid_argument("a record of parts holds another message");
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(kSizeBytes + size));
  return std::optional(std::move(*part));
}

}  // namespace hvd::launcher
