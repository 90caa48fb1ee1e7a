// Host-level aggregation: the ranks of one host give their records of an exchange to their agent, and
// the host asks the store once for all of them. When the agent has the records of all its ranks, it
// asks one rank to forward the host's record to the store, and distributes the result to all ranks.
// Messages travel on a Unix socket (net/packet_socket), bulk data in files in memory. Both ends use
// this code; pure but for those files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace hvd::rendezvous {

// The value of HOROVOD_STORE for ranks whose agent aggregates begins with this scheme; the abstract
// name of the store's socket follows.
constexpr std::string_view kAgentScheme = "agent:";
// The abstract name of the socket at which that agent takes records.
std::string aggregation_socket_name(std::string_view store_name);

namespace host_aggregation {

// From a rank: its record of this exchange, in the attached file.
struct RankRecord {
  std::string exchange;
  int32_t index = 0;
};
// To a rank: forward the host's record, in the attached file, to the store.
struct ForwardRequest {
  int32_t host = 0;
  int32_t hosts = 1;
};
// From the forwarding rank, then to the other ranks: the records of all hosts, in the attached file.
struct AggregationResult {};

using Message = std::variant<RankRecord, ForwardRequest, AggregationResult>;
Bytes encode(const Message& message);
Result<Message> decode(ByteView bytes);

// The record of a host: the records of its ranks by their indices. The bytes that a record begins
// with in common with the record before are not repeated.
Bytes pack(const std::map<int32_t, Bytes>& records);
// Puts a host's records at their places. Refuses a place that does not exist or is taken.
Status unpack(ByteView packed, std::vector<std::optional<Bytes>>* records);

// The aggregation result.
Bytes join(const std::vector<Bytes>& hosts);
// Of all `count` parties; each must be there.
Result<std::vector<Bytes>> split(ByteView result, int32_t count);

// Bulk, as a descriptor that can be sent.
Result<UniqueFd> to_file(ByteView bytes);
Result<Bytes> from_file(int file);

}  // namespace host_aggregation
}  // namespace hvd::rendezvous
