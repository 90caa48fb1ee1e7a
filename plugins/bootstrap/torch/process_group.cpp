#include "bootstrap/torch/process_group.h"

#include "base/text.h"

namespace hvd::bootstrap {
namespace {

constexpr uint16_t kFirstPort = 20000;
constexpr uint16_t kLastPort = 31999;  // below Linux's ip_local_port_range
constexpr uint32_t kStride = 2'999;    // distance from one attempt's port to the next port

Result<int64_t> number(const Variables& variables, const char* name, int64_t least, int64_t most) {
  const auto text = variables(name);
  if (!text || text->empty()) {
    return invalid_argument(
        cat("WORLD_SIZE is ", printable(variables("WORLD_SIZE").value_or("")), ", but ", name,
            " is not set; start all ranks by one launcher, or unset WORLD_SIZE for a program of "
            "one process"));
  }
  const auto value = parse_int(*text);
  if (!value || *value < least || *value > most) {
    return invalid_argument(cat(name, " is '", printable(*text), "', which is not a number from ",
                                least, " to ", most));
  }
  return *value;
}

uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash ^ (hash >> 32);
}

}  // namespace

std::string ProcessGroup::name() const { return cat(address, " ", port, " ", size, " ", run); }

Result<ProcessGroup> process_group_of(const Variables& variables) {
  if (!variables("WORLD_SIZE")) return failed_precondition("WORLD_SIZE is not set");
  ProcessGroup group;
  HVD_ASSIGN_OR_RETURN(const int64_t size, number(variables, "WORLD_SIZE", 1, 1 << 24));
  if (size == 1) return failed_precondition("WORLD_SIZE is 1");
  HVD_ASSIGN_OR_RETURN(const int64_t rank, number(variables, "RANK", 0, size - 1));
  group.rank = static_cast<int32_t>(rank);
  group.size = static_cast<int32_t>(size);
  if (variables("LOCAL_RANK") && variables("LOCAL_WORLD_SIZE")) {
    HVD_ASSIGN_OR_RETURN(const int64_t local, number(variables, "LOCAL_WORLD_SIZE", 1, size));
    HVD_ASSIGN_OR_RETURN(const int64_t place, number(variables, "LOCAL_RANK", 0, local - 1));
    group.local_rank = static_cast<int32_t>(place);
    group.local_size = static_cast<int32_t>(local);
  }
  HVD_ASSIGN_OR_RETURN(const int64_t port, number(variables, "MASTER_PORT", 1, 65535));
  group.port = static_cast<uint16_t>(port);
  group.address = trim(variables("MASTER_ADDR").value_or(""));
  if (group.address.empty()) {
    return invalid_argument(cat("RANK is ", rank, " and WORLD_SIZE is ", size,
                                ", but MASTER_ADDR does not name the host of rank 0; start all "
                                "ranks by one launcher, or unset WORLD_SIZE for a program of one "
                                "process"));
  }
  group.run = variables("TORCHELASTIC_RUN_ID").value_or("");
  return group;
}

uint16_t port_of_group(const ProcessGroup& group, uint16_t first, uint16_t last, int attempt) {
  if (first == 0) {
    first = kFirstPort;
    last = kLastPort;
  }
  const uint64_t ports = last - first + 1u;
  const auto offset = static_cast<uint64_t>(attempt) * (ports > kStride ? kStride : 1);
  const auto port = static_cast<uint16_t>(first + (hash_of(group.name()) + offset) % ports);
  if (port != group.port) return port;
  return static_cast<uint16_t>(port < last ? port + 1 : first);
}

}  // namespace hvd::bootstrap
