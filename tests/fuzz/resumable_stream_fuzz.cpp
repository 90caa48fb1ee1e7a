// The first byte chooses. 0: the rest arrives on a connection, and a receiver returns the same for
// any pieces. Otherwise the rest drives two ends through writes and disconnections: each end
// receives the other end's data in order and once.
#include <array>
#include <string>

#include "base/text.h"
#include "fuzz/target.h"
#include "launcher/protocol/resumable_stream.h"

namespace {

using namespace hvd;
using namespace hvd::launcher;

std::string carried(ByteView bytes, size_t piece) {
  ResumableStream stream(SessionKey{});
  std::string text;
  while (!bytes.empty()) {
    const ByteView part = bytes.first(std::min(piece, bytes.size()));
    bytes = bytes.subspan(part.size());
    Bytes copy(part.begin(), part.end());
    const auto size = stream.receive(copy);
    if (!size.ok()) return "failed";
    HVD_CHECK(*size <= copy.size());
    text += as_text(ByteView(copy).first(*size));
  }
  return cat(text, stream.has_ended() ? " and ended" : "");
}

class Pair {
 public:
  void put(size_t from, size_t size) {
    const size_t wanted = size == 255 ? 100'000 : size;  // larger than a record, or smaller
    std::string text(std::min(wanted, ends_[from].room()), '\0');
    for (char& each : text) each = static_cast<char>(put_[from]++);
    ends_[from].put(as_bytes(text));
  }
  // Delivers a record, or its first bytes.
  void deliver(size_t from, size_t limit) {
    Bytes record = ends_[from].take();
    if (limit < record.size()) record.resize(limit);
    const bool is_cut = limit == record.size();
    const auto size = ends_[1 - from].receive(record);
    HVD_CHECK(size.ok());
    for (const std::byte each : ByteView(record).first(*size)) {
      HVD_CHECK(each == static_cast<std::byte>(arrived_[from]++));
    }
    if (is_cut) reconnect();
  }
  void reconnect() {
    const Nonce one{std::byte{1}}, two{std::byte{2}};
    const Resume offer = ends_[1].offer(one, two);
    const auto answer = ends_[0].answer(offer, one);
    HVD_CHECK(answer.ok());
    HVD_CHECK(ends_[1].confirm(offer, one, *answer).ok());
  }
  void check_all_arrive() {
    for (const size_t from : {0, 1}) {
      for (int i = 0; i < 64 && ends_[from].has_unsent(); ++i) deliver(from, SIZE_MAX);
      HVD_CHECK(put_[from] == arrived_[from]);
    }
  }

 private:
  std::array<ResumableStream, 2> ends_{ResumableStream(SessionKey{}),
                                       ResumableStream(SessionKey{})};
  std::array<uint64_t, 2> put_{}, arrived_{};
};

}  // namespace

HVD_FUZZ_TARGET(resumable_stream) {
  if (size == 0) return;
  if (data[0] == 0) {
    bytes = bytes.subspan(1);
    HVD_CHECK(carried(bytes, size) == carried(bytes, 1));
    return;
  }
  Pair pair;
  for (size_t i = 1; i + 1 < size; i += 2) {
    const size_t from = data[i] & 1;
    switch (data[i] >> 1 & 3) {
      case 0:
        pair.put(from, data[i + 1]);
        break;
      case 1:
        pair.deliver(from, SIZE_MAX);
        break;
      case 2:
        pair.deliver(from, data[i + 1]);
        break;
      default:
        pair.reconnect();
    }
  }
  pair.check_all_arrive();
}
