#include "collectives/peer_record.h"

namespace hvd::collectives {
namespace {
constexpr uint32_t kMagic = 0x50445648;  // "HVDP"
constexpr uint32_t kVersion = 1;
}  // namespace

Bytes PeerRecord::encode() const {
  ByteWriter out;
  out.put(kMagic).put(kVersion).put(rank).put_text(host).put_text(machine).put_text(meeting);
  out.put(pid).put(uint32_t{port}).put(static_cast<uint32_t>(candidates.size()));
  for (const Candidate& candidate : candidates) {
    out.put_text(candidate.interface).put_blob(candidate.bytes);
  }
  return out.take();
}

Result<PeerRecord> PeerRecord::decode(ByteView bytes) {
  ByteReader in(bytes);
  PeerRecord record;
  if (in.get<uint32_t>() != kMagic || in.get<uint32_t>() != kVersion) {
    return invalid_argument("a rank's address record is of another version");
  }
  record.rank = in.get<int32_t>();
  record.host = in.get_text();
  record.machine = in.get_text();
  record.meeting = in.get_text();
  record.pid = in.get<uint32_t>();
  record.port = static_cast<uint16_t>(in.get<uint32_t>());
  const uint32_t count = in.get_count(8);
  for (uint32_t i = 0; i < count; ++i) {
    Candidate candidate;
    candidate.interface = in.get_text();
    const ByteView address = in.get_blob();
    if (!in.failed() && address.size() != 4 && address.size() != 16) {
      return invalid_argument("a rank's address record has an address of a strange size");
    }
    candidate.bytes.assign(address.begin(), address.end());
    record.candidates.push_back(std::move(candidate));
  }
  HVD_RETURN_IF_ERROR(in.finish("a rank's address record"));
  return record;
}

bool shares_kernel(const PeerRecord& one, const PeerRecord& other) {
  const auto boot_id = [](const PeerRecord& record) {
    return std::string_view(record.machine).substr(0, record.machine.find('/'));
  };
  return boot_id(one) == boot_id(other);
}

}  // namespace hvd::collectives
