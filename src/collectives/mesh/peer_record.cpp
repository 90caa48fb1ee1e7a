#include "collectives/mesh/peer_record.h"

#include <map>
#include <string_view>

namespace hvd::collectives {
namespace {
constexpr uint32_t kRecordMagic = 0x50445648;  // "HVDP"
constexpr uint32_t kRecordVersion = 2;
}  // namespace

Bytes PeerRecord::encode() const {
  ByteWriter out;
  out.put(kRecordMagic).put(kRecordVersion).put_text(host).put_text(machine).put_text(site);
  out.put(static_cast<uint32_t>(candidates.size()));
  for (const Candidate& candidate : candidates) {
    out.put_text(candidate.interface).put_blob(candidate.bytes);
  }
  out.put(rank).put_text(rendezvous_socket).put(pid).put(uint32_t{port});
  return out.take();
}

Result<PeerRecord> PeerRecord::decode(ByteView bytes) {
  ByteReader in(bytes);
  PeerRecord record;
  if (in.get<uint32_t>() != kRecordMagic || in.get<uint32_t>() != kRecordVersion) {
    return invalid_argument("a rank's address record is of another version");
  }
  record.host = in.get_text();
  record.machine = in.get_text();
  record.site = in.get_text();
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
  record.rank = in.get<int32_t>();
  record.rendezvous_socket = in.get_text();
  record.pid = in.get<uint32_t>();
  record.port = static_cast<uint16_t>(in.get<uint32_t>());
  HVD_RETURN_IF_ERROR(in.finish("a rank's address record"));
  return record;
}

std::optional<std::vector<int32_t>> known_leaders(const std::vector<PeerRecord>& records) {
  std::map<std::string_view, int32_t> lowest;  // lowest rank by machine
  std::vector<int32_t> leaders;
  for (size_t rank = 0; rank < records.size(); ++rank) {
    const PeerRecord& record = records[rank];
    const auto [found, is_new] = lowest.emplace(record.machine, static_cast<int32_t>(rank));
    const PeerRecord& leader = records[static_cast<size_t>(found->second)];
    if (!is_new && (record.site.empty() || record.site != leader.site)) return std::nullopt;
    leaders.push_back(found->second);
  }
  return leaders;
}

bool shares_kernel(const PeerRecord& one, const PeerRecord& other) {
  const auto boot_id = [](const PeerRecord& record) {
    return std::string_view(record.machine).substr(0, record.machine.find('/'));
  };
  return boot_id(one) == boot_id(other);
}

}  // namespace hvd::collectives
