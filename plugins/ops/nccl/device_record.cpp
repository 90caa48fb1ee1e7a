#include "ops/nccl/device_record.h"

#include <map>
#include <utility>

namespace hvd::ops::nccl {
namespace {

constexpr size_t kFields = 7;
constexpr size_t kLongestTrouble = 400;

std::string on_host(std::string_view host) {
  return host.empty() ? std::string() : cat(" of host ", printable(host));
}

std::string machine_of(const DeviceRecord& one) { return cat(one.host, "/", one.boot); }

// Returns a key that is equal for two GPUs with equal PCI addresses on hosts that NCCL treats as one host.
std::string address_of(const DeviceRecord& one) {
  if (one.bus.empty()) return {};
  return cat(one.apart.empty() ? machine_of(one) : one.apart, "/", one.bus);
}

std::string two(int32_t a, int32_t b) { return cat("ranks ", a, " and ", b); }

// Finds the first pair of records with an equal key.
std::pair<size_t, size_t> find_pair(const std::vector<DeviceRecord>& records,
                                    std::string (*key_of)(const DeviceRecord&)) {
  std::map<std::string, size_t> seen;
  for (size_t i = 0; i < records.size(); ++i) {
    const std::string key = key_of(records[i]);
    if (key.empty()) continue;
    const auto [first, is_new] = seen.try_emplace(key, i);
    if (!is_new) return {first->second, i};
  }
  return {0, 0};
}

}  // namespace

std::string DeviceRecord::text() const {
  if (!trouble.empty()) return cat("-", host, "\n", trouble);
  return "+" + join(std::vector<std::string>{library, host, boot, apart, uuid, bus, device}, "\n");
}

DeviceRecord DeviceRecord::parse(std::string_view text) {
  std::vector<std::string> lines = split(text.empty() ? text : text.substr(1), '\n');
  DeviceRecord record;
  if (text.starts_with('-') && lines.size() == 2) {
    record.host = lines[0];
    record.trouble = printable(lines[1], kLongestTrouble);
  } else if (text.starts_with('+') && lines.size() == kFields) {
    record = {lines[0], lines[1], lines[2], lines[3], lines[4], lines[5], lines[6], {}};
  } else {
    record.trouble = "its record of its GPU is malformed: all ranks need one version of Horovod";
  }
  return record;
}

std::string rank_on_host(int32_t rank, std::string_view host) {
  return cat("rank ", rank, host.empty() ? "" : " on host ", printable(host));
}

Status compare_devices(const std::vector<DeviceRecord>& records,
                       const std::vector<int32_t>& ranks) {
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].trouble.empty()) continue;
    return unavailable(cat(rank_on_host(ranks[i], records[i].host), ": ", records[i].trouble));
  }
  for (size_t i = 1; i < records.size(); ++i) {
    if (records[i].library == records[0].library) continue;
    return unavailable(cat(
        rank_on_host(ranks[0], records[0].host), " has ", printable(records[0].library), ", and ",
        rank_on_host(ranks[i], records[i].host), " has ", printable(records[i].library),
        ": all ranks need one version of NCCL; HOROVOD_NCCL_LIBRARY may name "
        "its library"));
  }
  if (const auto [a, b] = find_pair(records,
                                    [](const DeviceRecord& one) {
                                      return one.uuid.empty() ? one.uuid : one.uuid + one.apart;
                                    });
      a != b) {
    return unavailable(cat(
        two(ranks[a], ranks[b]), " use one GPU, number ", printable(records[a].device),
        on_host(records[a].host),
        ", and NCCL needs one for each rank: start as many ranks on a host as it has GPUs, and let "
        "each choose its own, as by torch.cuda.set_device(hvd.local_rank())"));
  }
  if (const auto [a, b] = find_pair(records, address_of); a != b) {
    const std::string bus = printable(records[a].bus);
    if (machine_of(records[a]) != machine_of(records[b])) {
      return unavailable(cat(two(ranks[a], ranks[b]), " have GPUs with one PCI address, ", bus,
                             ", on two hosts, ", printable(records[a].host), " and ",
                             printable(records[b].host), ", and NCCL_HOSTID is ",
                             printable(records[a].apart),
                             " on both, so that NCCL takes them for one GPU: unset it, or set it "
                             "to a value of its own on each host"));
    }
    return unavailable(cat(two(ranks[a], ranks[b]), " use two MIG instances of one GPU, ", bus,
                           on_host(records[a].host),
                           ", which NCCL does not connect: switch MIG off, or start one rank for "
                           "each GPU"));
  }
  return {};
}

}  // namespace hvd::ops::nccl
