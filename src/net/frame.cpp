#include "net/frame.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/text.h"

namespace hvd::net {

namespace {

// The magic number: "HVD" after a byte that never begins a text in ASCII or UTF-8.
constexpr std::array<std::byte, 4> kMagic = {std::byte{0x89}, std::byte{'H'}, std::byte{'V'},
                                             std::byte{'D'}};

bool is_known(FrameType type) { return type >= FrameType::kControl && type <= FrameType::kReset; }

}  // namespace

void FrameParser::feed(ByteView bytes) {
  if (!failure_.ok()) return;
  // Remove parsed bytes, but rarely, since removing moves the rest.
  if (begin_ == buffer_.size()) {
    buffer_.clear();
    begin_ = 0;
  } else if (begin_ > (64u << 10) && begin_ > buffer_.size() / 2) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(begin_));
    begin_ = 0;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Status FrameParser::check_magic(ByteView bytes) const {
  const size_t size = std::min(bytes.size(), kMagic.size());
  if (std::equal(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size), kMagic.begin())) {
    return {};
  }
  if (has_header_) return internal_error("unexpected bytes between two frames on the link");
  return unavailable(cat("the far side is not a horovod agent: it began with '",
                         printable(trim(as_text(bytes))), "'"));
}

Result<std::optional<Frame>> FrameParser::next() {
  if (!failure_.ok()) return failure_;
  const ByteView bytes = ByteView(buffer_).subspan(begin_);
  failure_ = check_magic(bytes);
  if (!failure_.ok()) return failure_;
  if (bytes.size() < kMagic.size() + sizeof(uint16_t)) return std::optional<Frame>();

  ByteReader reader(bytes.subspan(kMagic.size()));
  const auto version = reader.get<uint16_t>();
  if (version != kFrameVersion) {
    failure_ = failed_precondition(cat("the far side speaks version ", version,
                                       " of the agent's protocol and this side version ",
                                       kFrameVersion, ": install the same release on both"));
    return failure_;
  }
  has_header_ = true;
  if (bytes.size() < kFrameHeaderSize) return std::optional<Frame>();
  FrameHeader header;
  header.type = reader.get<FrameType>();
  header.job = reader.get<uint64_t>();
  header.generation = reader.get<uint32_t>();
  header.host = reader.get<uint32_t>();
  header.stream = reader.get<uint32_t>();
  header.credit = reader.get<uint32_t>();
  const auto length = reader.get<uint32_t>();
  if (!is_known(header.type)) {
    failure_ = internal_error(
        cat("the far side sent a frame of the unknown type ", static_cast<unsigned>(header.type)));
    return failure_;
  }
  if (length > max_payload_) {
    failure_ = internal_error(cat("the far side sent a frame of ", length, " bytes, more than the ",
                                  max_payload_, " that are allowed"));
    return failure_;
  }
  if (bytes.size() < kFrameHeaderSize + length) return std::optional<Frame>();
  begin_ += kFrameHeaderSize + length;
  return std::optional<Frame>(Frame{header, bytes.subspan(kFrameHeaderSize, length)});
}

void FrameWriter::put(const FrameHeader& header, ByteView payload, Urgency urgency) {
  HVD_CHECK(payload.size() <= kMaxPayload);
  ByteWriter writer;
  writer.put_raw(kMagic).put(kFrameVersion).put(header.type).put(header.job);
  writer.put(header.generation).put(header.host).put(header.stream).put(header.credit);
  writer.put(static_cast<uint32_t>(payload.size())).put_raw(payload);
  queued_ += writer.size();
  queues_[static_cast<size_t>(urgency)].push_back(writer.take());
}

Bytes FrameWriter::take(size_t size) {
  Bytes batch;
  for (auto& queue : queues_) {
    while (!queue.empty() && (batch.empty() || batch.size() < size)) {
      if (batch.empty())
        batch = std::move(queue.front());
      else
        batch.insert(batch.end(), queue.front().begin(), queue.front().end());
      queue.pop_front();
    }
  }
  queued_ -= batch.size();
  return batch;
}

bool Credit::grant(uint32_t more) {
  if (more > std::numeric_limits<uint32_t>::max() - left_) return false;
  left_ += more;
  return true;
}

void Credit::use(size_t size) {
  HVD_CHECK(size <= left_);
  left_ -= static_cast<uint32_t>(size);
}

bool Window::arrived(size_t size) {
  if (size > open_) return false;
  open_ -= static_cast<uint32_t>(size);
  pending_ += static_cast<uint32_t>(size);
  return true;
}

uint32_t Window::consumed(size_t size) {
  const auto now = static_cast<uint32_t>(std::min<size_t>(size, pending_));
  pending_ -= now;
  returnable_ += now;
  if (returnable_ < size_ / 2) return 0;
  open_ += returnable_;
  return std::exchange(returnable_, 0);
}

}  // namespace hvd::net
