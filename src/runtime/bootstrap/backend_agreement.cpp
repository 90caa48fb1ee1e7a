#include "runtime/bootstrap/backend_agreement.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/log/log.h"
#include "base/text.h"
#include "collectives/mesh/late_ranks.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {
namespace {

// For which a rank in trouble waits for the others before it says so.
constexpr double kSilentSeconds = 1;
constexpr const char* kBackendsName = "engines";
constexpr char kChosen = '+';
constexpr char kInTrouble = '-';

std::string who_has(const std::vector<int32_t>& ranks) {
  return ranks.size() == 1 ? cat("rank ", ranks[0], " has ")
                           : cat("ranks ", list_text(ranks), " have ");
}

Status compare(const std::vector<std::string>& records) {
  std::map<std::string, std::vector<int32_t>> ranks;
  for (size_t rank = 0; rank < records.size(); ++rank) {
    if (records[rank].empty() || records[rank].front() != kChosen) {
      const std::string why = records[rank].substr(std::min<size_t>(records[rank].size(), 1));
      return unavailable(cat("rank ", rank, ": ", printable(why)));
    }
    ranks[records[rank].substr(1)].push_back(static_cast<int32_t>(rank));
  }
  if (ranks.size() < 2) return {};
  std::string found;
  for (const auto& [words, those] : ranks) {
    found += cat(found.empty() ? "" : "; ", who_has(those), printable(words));
  }
  return failed_precondition(cat("the ranks have chosen different backends: ", found,
                                 "; set HOROVOD_CONTROLLER and HOROVOD_CPU_OPERATIONS alike on all "
                                 "ranks, of one build"));
}

}  // namespace

Status agree_on_backends(const PluginHost& host, const Identity& identity,
                         const Result<std::string>& own, Deadline deadline) {
  if (identity.size == 1) return own.status();
  const std::string sent = own.ok() ? kChosen + own.value() : kInTrouble + own.error().message();
  const auto exchange = [&](const std::vector<int32_t>& wanted, double seconds) {
    std::vector<std::string> records;
    const hvd_plugin_host& vtable = *host.vtable();
    const int code = vtable.store_exchange(
        vtable.host, kBackendsName, identity.rank, identity.size, sent.data(), sent.size(),
        wanted.data(), static_cast<int32_t>(wanted.size()), seconds,
        [](void* to, const void* bytes, size_t size) {
          static_cast<std::vector<std::string>*>(to)->emplace_back(static_cast<const char*>(bytes),
                                                                   size);
        },
        &records);
    return std::pair(static_cast<Code>(code), std::move(records));
  };
  if (!own.ok()) {
    // Log the error now: the other ranks may take long to arrive, and a user may read this log
    // alone.
    if (exchange({}, std::min(kSilentSeconds, deadline.seconds_left())).first == Code::kOk) {
      return own.error();
    }
    log::error(own.error().message());
  }
  const auto [code, records] = exchange({}, deadline.seconds_left());
  if (!own.ok()) return own.error();
  if (code == Code::kDeadlineExceeded) {
    return collectives::late_ranks(identity.rank, identity.size, [&](int32_t other) {
      return exchange({other}, collectives::kLookAgainSeconds).first == Code::kOk;
    });
  }
  if (code != Code::kOk) return {code, "the ranks cannot tell each other their engines"};
  return compare(records);
}

}  // namespace hvd::runtime
