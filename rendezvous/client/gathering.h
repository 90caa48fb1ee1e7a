// How the ranks of one host leave their records with the agent that started them, so that the host
// asks the store once for all. A rank offers its record; when all have, the agent sends one of
// them, which is asking anyway, with the host's record to the store; what that one brings goes to
// all. Messages on a Unix socket (net/packet_socket), with the bulk in files in memory. Pure but
// for those files; both ends use this one.
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

// What a rank is told as HOROVOD_STORE where the agent gathers: this, then the abstract name at
// which the store is.
constexpr std::string_view kAgentScheme = "agent:";
// The abstract name at which that agent gathers.
std::string gathering_place(std::string_view store_name);

namespace gathering {

// A rank's record of this exchange, in the file that comes along.
struct Offer {
  std::string exchange;
  int32_t index = 0;
};
// To a rank: take the host's record, in the file, to the store.
struct Errand {
  int32_t host = 0;
  int32_t hosts = 1;
};
// The records of all hosts, in the file: from the rank that had the errand, and to all others.
struct Delivery {};

using Message = std::variant<Offer, Errand, Delivery>;
Bytes encode(const Message& message);
Result<Message> decode(ByteView bytes);

// The record of a host: those of its ranks by their indices. What a record begins with as the one
// before it is not written again.
Bytes pack(const std::map<int32_t, Bytes>& records);
// Puts a host's records at their places. Refuses a place that does not exist or is taken.
Status unpack(ByteView packed, std::vector<std::optional<Bytes>>* records);

// What is delivered.
Bytes join(const std::vector<Bytes>& hosts);
// Of all `count` parties; each must be there.
Result<std::vector<Bytes>> split(ByteView delivery, int32_t count);

// Bulk, as a descriptor that can be sent.
Result<UniqueFd> to_file(ByteView bytes);
Result<Bytes> from_file(int file);

}  // namespace gathering
}  // namespace hvd::rendezvous
