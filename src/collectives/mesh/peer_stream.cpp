#include "collectives/mesh/peer_stream.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/text.h"

namespace hvd::collectives {

AesGcm& RecordCipher::advance(uint64_t& number) {
  number = next_++;
  if (!cipher_ || number % kRecordsPerKey == 0) {
    const uint64_t key = number / kRecordsPerKey;
    cipher_.emplace(link_key_.sign(ByteWriter().put(key).view()), direction_);
  }
  return *cipher_;
}

Result<size_t> RecordSealer::seal(std::span<const ByteView> parts, size_t skip) {
  if (cipher_.is_used_up()) {
    return failed_precondition("a link has no number for another record; start the job again");
  }
  std::array<ByteView, kMostParts> content;
  size_t count = 0, size = 0;
  for (ByteView part : parts) {
    const size_t skipped = std::min(skip, part.size());
    skip -= skipped;
    part = part.subspan(skipped);
    part = part.first(std::min(part.size(), kMostContent - size));
    if (part.empty()) continue;
    HVD_CHECK(count < kMostParts);
    content[count++] = part;
    size += part.size();
  }
  HVD_CHECK(size > 0);
  size_ = kHeader + size + AesGcm::kTagSize;
  sent_ = 0;
  if (record_.size() < size_) record_.resize(size_);
  const std::array<uint32_t, 2> header{static_cast<uint32_t>(size), ~static_cast<uint32_t>(size)};
  std::memcpy(record_.data(), header.data(), kHeader);
  uint64_t number = 0;
  AesGcm& cipher = cipher_.advance(number);
  cipher.seal(number, std::span(content).first(count), record_.data() + kHeader);
  return size;
}

std::span<std::byte> RecordOpener::space() {
  HVD_CHECK(content_.empty());
  constexpr size_t kMostRecord =
      RecordSealer::kHeader + RecordSealer::kMostContent + AesGcm::kTagSize;
  static_assert(kRoom >= 2 * kMostRecord);
  if (bytes_.empty()) bytes_.resize(kSmallRoom);
  const size_t kept = end_ - begin_;
  if (kept == 0 || bytes_.size() - end_ < kMostRecord) {
    if (kept > 0 && begin_ > 0) std::memmove(bytes_.data(), bytes_.data() + begin_, kept);
    begin_ = 0;
    end_ = kept;
  }
  // The initial buffer is too small for this record.
  if (end_ == bytes_.size()) bytes_.resize(kRoom);
  return std::span(bytes_).subspan(end_);
}

size_t RecordOpener::next_length() const {
  if (end_ - begin_ < RecordSealer::kHeader) return 0;
  std::array<uint32_t, 2> header;
  std::memcpy(header.data(), bytes_.data() + begin_, RecordSealer::kHeader);
  const bool is_length = header[0] == ~header[1] && header[0] > 0;
  return is_length && header[0] <= RecordSealer::kMostContent ? header[0] : kBroken;
}

bool RecordOpener::has_content() const {
  if (is_broken_) return false;
  if (!content_.empty()) return true;
  const size_t length = next_length();
  if (length == 0 || length == kBroken) return length == kBroken;
  return end_ - begin_ >= RecordSealer::kHeader + length + AesGcm::kTagSize;
}

Status RecordOpener::broken() {
  is_broken_ = true;
  return invalid_argument(
      "a record is not the next one that was sent: it was changed, repeated, reordered or left "
      "out");
}

Result<size_t> RecordOpener::take(std::span<std::byte> bytes) {
  if (is_broken_) return broken();
  if (content_.empty()) {
    const size_t length = next_length();
    if (length == kBroken) return broken();
    const size_t sealed_size = length + AesGcm::kTagSize;
    if (length == 0 || end_ - begin_ < RecordSealer::kHeader + sealed_size) return size_t{0};
    if (cipher_.is_used_up()) return broken();
    const auto sealed = std::span(bytes_).subspan(begin_ + RecordSealer::kHeader, sealed_size);
    // Avoids a copy if the caller's buffer holds the complete content.
    const bool fits = length <= bytes.size();
    uint64_t number = 0;
    AesGcm& cipher = cipher_.advance(number);
    if (!cipher.open(number, sealed, fits ? bytes.data() : sealed.data())) return broken();
    begin_ += RecordSealer::kHeader + sealed_size;
    if (fits) return length;
    content_ = sealed.first(length);
  }
  const size_t size = std::min(bytes.size(), content_.size());
  std::memcpy(bytes.data(), content_.data(), size);
  content_ = content_.subspan(size);
  return size;
}

Status PeerStream::attach(GuardedFd socket, const std::optional<LinkKeys>& keys) {
  socket_ = std::move(socket);
  if (keys) records_ = std::make_unique<Records>(*keys);
  readable_ = writable_ = true;
  const bool is_watched = loop_.watch(socket_.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                      [this](uint32_t events) { on_events(events); });
  return is_watched ? Status() : system_error("cannot watch a link", errno);
}

void PeerStream::close() {
  if (!socket_) return;
  loop_.unwatch(socket_.get());
  socket_.reset();
}

void PeerStream::on_events(uint32_t events) {
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) readable_ = true;
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) closing_ = true;
  if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) writable_ = true;
}

void PeerStream::end(int reason) {
  readable_ = writable_ = false;
  if (!ended_) end_reason_ = reason;
  ended_ = true;
}

// Handles the result of a write. Returns the number of written bytes, 0 after an error.
size_t PeerStream::wrote(ssize_t size) {
  if (size > 0) return static_cast<size_t>(size);
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    writable_ = false;
  } else if (errno != EINTR) {
    // Reads continue: bytes that the peer sent before its end may still arrive.
    writable_ = false;
    if (!ended_) end_reason_ = errno;
    ended_ = true;
  }
  return 0;
}

size_t PeerStream::write_some(ByteView bytes) {
  if (records_) [[unlikely]]
    return write_records({&bytes, 1});
  size_t written = 0;
  while (writable_ && written < bytes.size()) {
    written += wrote(::send(socket_.get(), bytes.data() + written, bytes.size() - written,
                            MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  return written;
}

size_t PeerStream::write_parts(std::span<const ByteView> parts) {
  if (records_) [[unlikely]]
    return write_records(parts);
  if (!writable_) return 0;
  iovec vectors[4];
  msghdr message{};
  message.msg_iov = vectors;
  for (const ByteView part : parts) {
    vectors[message.msg_iovlen++] = {const_cast<std::byte*>(part.data()), part.size()};
  }
  return wrote(::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

// Returns the number of bytes whose records the socket has accepted completely. If a record is incomplete, the caller's
// next call sends the rest.
size_t PeerStream::write_records(std::span<const ByteView> parts) {
  RecordSealer& sealer = records_->sealer;
  size_t size = 0;
  for (const ByteView part : parts) size += part.size();
  size_t written = 0;
  while (writable_ && written < size) {
    if (records_->sealed == 0) {
      const auto sealed = sealer.seal(parts, written);
      if (!sealed.ok()) {
        end(EOVERFLOW);
        break;
      }
      records_->sealed = *sealed;
    }
    while (writable_ && !sealer.output().empty()) {
      const ByteView output = sealer.output();
      sealer.sent(
          wrote(::send(socket_.get(), output.data(), output.size(), MSG_NOSIGNAL | MSG_DONTWAIT)));
    }
    if (!sealer.output().empty()) break;
    const size_t returned = std::min(records_->sealed, size - written);
    records_->sealed -= returned;
    written += returned;
  }
  return written;
}

size_t PeerStream::read_record(std::span<std::byte> bytes) {
  if (bytes.empty()) return 0;
  RecordOpener& opener = records_->opener;
  for (;;) {
    const auto got = opener.take(bytes);
    if (!got.ok()) {
      // The sending direction still works, and may carry the cause.
      const bool may_write = writable_;
      end(EBADMSG);
      writable_ = may_write;
      return 0;
    }
    if (*got > 0 || !readable_) return *got;
    opener.advance(receive(opener.space()));
  }
}

size_t PeerStream::read_once(std::span<std::byte> bytes) {
  if (records_) [[unlikely]]
    return read_record(bytes);
  return receive(bytes);
}

size_t PeerStream::receive(std::span<std::byte> bytes) {
  if (!readable_ || bytes.empty()) return 0;
  const ssize_t size = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (size > 0) {
    // After a short read, an event reports the next bytes.
    if (static_cast<size_t>(size) < bytes.size() && !closing_) readable_ = false;
    return static_cast<size_t>(size);
  }
  if (size == 0) {
    end(0);
  } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
    readable_ = false;
  } else if (errno != EINTR) {
    end(errno);
  }
  return 0;
}

size_t PeerStream::read_some(std::span<std::byte> bytes) {
  size_t got = 0;
  while (may_read() && got < bytes.size()) got += read_once(bytes.subspan(got));
  return got;
}

std::span<std::byte> FrameReader::space() {
  const size_t kept = end_ - begin_;
  if (kept == 0 || begin_ > kFront) {
    if (kept > 0) std::memmove(bytes_.data() + kFront, bytes_.data() + begin_, kept);
    begin_ = kFront;
    end_ = kFront + kept;
  }
  // Memory grows with the received bytes, not with the size that a header claims.
  if (bytes_.empty())
    bytes_.resize(kFront + kRoom);
  else if (end_ == bytes_.size())
    bytes_.resize(kFront + 2 * kept);
  return std::span(bytes_).subspan(end_);
}

Result<bool> FrameReader::next(ControlFrame& frame) {
  if (end_ - begin_ < kHeader) return false;
  ByteReader header(ByteView(bytes_).subspan(begin_, kHeader));
  const auto whole = header.get<uint32_t>();
  const auto kind = header.get<uint8_t>();
  if (kind < 1 || kind > 3 || whole > kLimit) {
    return invalid_argument(
        cat("a frame of kind ", int{kind}, " with ", whole, " bytes is none of ours"));
  }
  if (end_ - begin_ - kHeader < whole) return false;
  frame = {static_cast<FrameKind>(kind), ByteView(bytes_).subspan(begin_ + kHeader, whole)};
  begin_ += kHeader + whole;
  return true;
}

void ControlStream::put(FrameKind kind, ByteView first, ByteView second) {
  ByteWriter header;
  header.put(static_cast<uint32_t>(first.size() + second.size())).put(kind);
  const ByteView parts[] = {header.view(), first, second};
  size_t written = output_.empty() ? peer_stream_.write_parts(parts) : 0;
  Bytes rest;
  for (const ByteView part : parts) {
    const size_t gone = std::min(written, part.size());
    written -= gone;
    rest.insert(rest.end(), part.begin() + static_cast<ptrdiff_t>(gone), part.end());
  }
  if (rest.empty()) return;
  output_.push_back(std::move(rest));
  flush();
}

bool ControlStream::flush() {
  bool moved = false;
  while (!output_.empty()) {
    const size_t size = peer_stream_.write_some(ByteView(output_.front()).subspan(written_));
    if (size == 0) break;
    moved = true;
    written_ += size;
    if (written_ == output_.front().size()) {
      output_.pop_front();
      written_ = 0;
    }
  }
  return moved;
}

Result<bool> ControlStream::next(ControlFrame& frame) {
  for (;;) {
    HVD_ASSIGN_OR_RETURN(const bool whole, reader_.next(frame));
    if (whole) return true;
    if (!peer_stream_.may_read()) return false;
    const size_t got = peer_stream_.read_once(reader_.space());
    if (got == 0) return false;
    reader_.advance(got);
  }
}

}  // namespace hvd::collectives
