// Messages between runtimes: any bytes, decoded as each kind. A message that decodes must survive
// encoding and decoding.
#include <cstdlib>

#include "fuzz/target.h"
#include "runtime/stall/stall_report.h"
#include "runtime/wire/message.h"

namespace {

template <typename T>
void round_trip(hvd::ByteView message) {
  T first;
  if (!decode(message, &first).ok()) return;
  hvd::ByteWriter out;
  encode(first, out);
  T second;
  if (!decode(out.view(), &second).ok()) std::abort();
  hvd::ByteWriter again;
  encode(second, again);
  if (hvd::as_text(out.view()) != hvd::as_text(again.view())) std::abort();
}

}  // namespace

HVD_FUZZ_TARGET(runtime_message) {
  hvd::runtime::MessageKind kind{};
  (void)hvd::runtime::peek_kind(bytes, &kind);
  round_trip<hvd::runtime::Announcement>(bytes);
  round_trip<hvd::runtime::Plan>(bytes);
  round_trip<hvd::runtime::TentativePlan>(bytes);
  round_trip<hvd::runtime::StallHello>(bytes);
  round_trip<hvd::runtime::StallWaiting>(bytes);
  round_trip<hvd::runtime::StallAsk>(bytes);
  round_trip<hvd::runtime::StallAnswer>(bytes);
  hvd::runtime::PeerMessage peer;
  if (decode(bytes, &peer).ok()) {
    const auto header = header_of(peer);
    hvd::runtime::PeerMessage again;
    const auto whole = hvd::ByteWriter().put_raw(header).put_raw(peer.rest).take();
    if (!decode(whole, &again).ok() || again.step != peer.step || again.count != peer.count)
      std::abort();
  }
  hvd::runtime::Notice notice;
  (void)hvd::runtime::decode(bytes, &notice);
}
