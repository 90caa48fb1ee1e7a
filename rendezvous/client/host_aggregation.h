// Host-level aggregation of an exchange: messages between the ranks of a host and their agent. Each rank sends its
// record to the agent. When the agent has the records of all its ranks, it asks one rank to forward the host's record
// to the store, and distributes the result to the other ranks. Messages are sent over a Unix socket
// (net/packet_socket), records in memory files (memfd). Stateless; the only I/O is on the memory files.
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

// Scheme in HOROVOD_STORE for ranks whose agent aggregates; the abstract name of the store's socket
// follows.
constexpr std::string_view kAgentScheme = "agent:";
// Returns the abstract name of the socket at which the agent accepts records. A user who sees this name cannot compute
// the store's name.
std::string aggregation_socket_name(std::string_view store_name);

namespace host_aggregation {

// Message from a rank: its record of this exchange, in the attached file.
struct RankRecord {
  int32_t index = 0;
  std::string exchange;
};
// Message to a rank: request to forward the host's record, in the attached file, to the store.
struct ForwardRequest {
  int32_t host = 0;
  int32_t hosts = 1;
};
// Message from the forwarding rank, and then to the other ranks: the records of all hosts, in the attached file.
struct AggregationResult {};

using Message = std::variant<RankRecord, ForwardRequest, AggregationResult>;
Bytes encode(const Message& message);
Result<Message> decode(ByteView bytes);

// Encodes the record of a host: its ranks' records by index. A record omits the prefix that it
// shares with the previous record.
Bytes pack(const std::map<int32_t, Bytes>& records);
// Stores a host's records at their indices. Refuses an index that is out of range or already used.
Status unpack(ByteView packed, std::vector<std::optional<Bytes>>* records);

// Returns the aggregation result: the records of all hosts.
Bytes join(const std::vector<Bytes>& hosts);
// Returns the records of all `count` parties by index; an error if one is missing.
Result<std::vector<Bytes>> split(ByteView result, int32_t count);

// Writes bytes to a memory file, whose descriptor can be sent.
Result<UniqueFd> to_file(ByteView bytes);
Result<Bytes> from_file(int file);

}  // namespace host_aggregation
}  // namespace hvd::rendezvous
