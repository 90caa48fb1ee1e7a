#include "rendezvous/client/host_aggregation.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/secrets/hmac.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "base/wire/value_bytes.h"

namespace hvd::rendezvous {

std::string aggregation_socket_name(std::string_view store_name) {
  return cat("horovod-exchange-", to_hex(sha256(as_bytes(store_name))).substr(0, 32));
}

namespace host_aggregation {
namespace {

enum class AggregationKind : uint8_t {
  kRankRecord = 1,
  kForwardRequest = 2,
  kAggregationResult = 3
};

// Limit for the records of all hosts together.
constexpr off_t kMaxFileBytes = off_t{1} << 30;
constexpr size_t kLeastRecord = 3 * sizeof(uint32_t);

size_t common_beginning(const Bytes& one, const Bytes& other) {
  const size_t most = std::min(one.size(), other.size());
  const auto end = one.begin() + static_cast<ptrdiff_t>(most);
  return static_cast<size_t>(std::mismatch(one.begin(), end, other.begin()).first - one.begin());
}

}  // namespace

Bytes encode(const Message& message) {
  ByteWriter out;
  if (const auto* record = std::get_if<RankRecord>(&message)) {
    out.put(AggregationKind::kRankRecord);
    put(out, *record);
  } else if (const auto* request = std::get_if<ForwardRequest>(&message)) {
    out.put(AggregationKind::kForwardRequest);
    put(out, *request);
  } else {
    out.put(AggregationKind::kAggregationResult);
  }
  return out.take();
}

Result<Message> decode(ByteView bytes) {
  ByteReader in(bytes);
  Message message;
  switch (in.get<AggregationKind>()) {
    case AggregationKind::kRankRecord:
      get(in, message.emplace<RankRecord>());
      break;
    case AggregationKind::kForwardRequest:
      get(in, message.emplace<ForwardRequest>());
      break;
    case AggregationKind::kAggregationResult:
      message = AggregationResult{};
      break;
    default:
      return invalid_argument("a message between a rank and its agent has an unknown kind");
  }
  HVD_RETURN_IF_ERROR(in.finish("a message between a rank and its agent"));
  return message;
}

Bytes pack(const std::map<int32_t, Bytes>& records) {
  ByteWriter out;
  out.put(static_cast<uint32_t>(records.size()));
  const Bytes* before = nullptr;
  for (const auto& [index, record] : records) {
    const size_t shared = before != nullptr ? common_beginning(*before, record) : 0;
    out.put(index).put(static_cast<uint32_t>(shared)).put_blob(ByteView(record).subspan(shared));
    before = &record;
  }
  return out.take();
}

Status unpack(ByteView packed, std::vector<std::optional<Bytes>>* records) {
  ByteReader in(packed);
  const uint32_t count = in.get_count(kLeastRecord);
  Bytes record;
  for (uint32_t i = 0; i < count; ++i) {
    const auto index = in.get<uint32_t>();
    const auto shared = in.get<uint32_t>();
    const ByteView rest = in.get_blob();
    if (in.failed() || index >= records->size() || (*records)[index] || shared > record.size()) {
      return invalid_argument("a host's records are malformed");
    }
    record.resize(shared);
    record.insert(record.end(), rest.begin(), rest.end());
    (*records)[index] = record;
  }
  return in.finish("a host's records");
}

Bytes join(const std::vector<Bytes>& hosts) {
  ByteWriter out;
  for (const Bytes& host : hosts) out.put_blob(host);
  return out.take();
}

Result<std::vector<Bytes>> split(ByteView result, int32_t count) {
  std::vector<std::optional<Bytes>> found(static_cast<size_t>(count));
  ByteReader in(result);
  while (in.left() > 0) HVD_RETURN_IF_ERROR(unpack(in.get_blob(), &found));
  HVD_RETURN_IF_ERROR(in.finish("the hosts' records"));
  std::vector<Bytes> records;
  records.reserve(found.size());
  for (std::optional<Bytes>& record : found) {
    if (!record) return invalid_argument(cat("the hosts' records lack party ", records.size()));
    records.push_back(std::move(*record));
  }
  return records;
}

Result<UniqueFd> to_file(ByteView bytes) {
  UniqueFd file(::memfd_create("horovod-records", MFD_CLOEXEC));
  if (!file) return system_error("cannot create a file in memory", errno);
  while (!bytes.empty()) {
    const ssize_t size = ::write(file.get(), bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return system_error("cannot write to a file in memory", errno);
    bytes = bytes.subspan(static_cast<size_t>(size));
  }
  return file;
}

Result<Bytes> from_file(int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0) return system_error("cannot look at a file in memory", errno);
  if (!S_ISREG(status.st_mode) || status.st_size > kMaxFileBytes) {
    return invalid_argument("a file of records is not a regular file, or is too large");
  }
  Bytes bytes(static_cast<size_t>(status.st_size));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t size =
        ::pread(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return system_error("cannot read a file in memory", errno);
    if (size == 0) return invalid_argument("a file of records became shorter");
    done += static_cast<size_t>(size);
  }
  return bytes;
}

}  // namespace host_aggregation
}  // namespace hvd::rendezvous
