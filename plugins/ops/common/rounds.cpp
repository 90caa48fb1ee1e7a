#include "ops/common/rounds.h"

#include "base/plugin_record.h"

namespace hvd::ops {
namespace {

constexpr char kGood = '+';

}  // namespace

Result<std::vector<std::string>> Rounds::exchange(const char* name, const Status& own,
                                                  const std::string& record) const {
  if (config_.size == 1) {
    if (!own.ok()) return own;
    return std::vector<std::string>{record};
  }
  const std::string sent = own.ok() ? kGood + record : "-" + own.message();
  std::vector<std::string> records;
  const int code = exchange_records(host_, name, config_.rank, config_.size, sent, {},
                                    start_seconds(host_), &records);
  if (!own.ok()) return own;
  if (code != HVD_OK || records.size() != static_cast<size_t>(config_.size)) {
    return Status(code == HVD_OK ? Code::kInternal : static_cast<Code>(code),
                  cat("not all ranks have said what they have (", name, ")"));
  }
  for (size_t rank = 0; rank < records.size(); ++rank) {
    if (records[rank].empty() || records[rank].front() != kGood) {
      return unavailable(
          cat("rank ", rank, ": ", records[rank].substr(records[rank].empty() ? 0 : 1)));
    }
    records[rank].erase(0, 1);
  }
  return records;
}

std::string library_record(const Result<std::string>& version) {
  return version.ok() ? "+" + *version : "-" + version.error().message();
}

Status check_same_library(const std::vector<std::string>& records, std::string_view advice) {
  for (size_t rank = 0; rank < records.size(); ++rank) {
    if (records[rank].empty()) {
      return unavailable(cat("rank ", rank, " does not say which library it has"));
    }
  }
  const auto state_of = [&](size_t rank) {
    const std::string rest = records[rank].substr(1);
    return records[rank].front() == '+' ? cat("has ", rest) : cat("has none: ", rest);
  };
  for (size_t rank = 1; rank < records.size(); ++rank) {
    const bool both_lack_it = records[rank].front() == '-' && records[0].front() == '-';
    if (both_lack_it || records[rank] == records[0]) continue;
    return unavailable(
        cat("rank 0 ", state_of(0), ", and rank ", rank, " ", state_of(rank), ": ", advice));
  }
  return {};
}

}  // namespace hvd::ops
