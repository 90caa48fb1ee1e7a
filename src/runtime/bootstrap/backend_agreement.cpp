#include "runtime/bootstrap/backend_agreement.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "base/log/log.h"
#include "base/plugin_record.h"
#include "base/text.h"
#include "collectives/mesh/key_value_store.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {
namespace {

// The time for which a rank with an error waits for the other ranks before it logs the error.
constexpr double kSilentSeconds = 1;
// The time in which other ranks can receive this rank's error.
constexpr double kTroubleSeconds = 30;
// Ranks that start together time out within this time of each other.
constexpr double kGivenUpSeconds = 1;
// After this time without an agent, a rank names the missing ranks.
constexpr double kQuietSeconds = 60;
constexpr const char* kBackendsName = "engines";
constexpr char kChosen = '+';
constexpr char kInTrouble = '-';
constexpr size_t kLongestTrouble = 1000;

std::string who_has(const std::vector<int32_t>& ranks) {
  return ranks.size() == 1 ? cat("rank ", ranks[0], " has ")
                           : cat("ranks ", list_text(ranks), " have ");
}

// Ranks of one release may have different patch versions.
Status compare_versions(const std::vector<std::vector<std::string>>& choices) {
  struct Holders {
    size_t first = 0;
    size_t count = 0;
  };
  std::map<std::string, Holders> holders;  // by release
  for (size_t rank = 0; rank < choices.size(); ++rank) {
    Holders& same = holders[std::string(release_of(choices[rank][1]))];
    if (same.count++ == 0) same.first = rank;
  }
  if (holders.size() < 2) return {};
  std::vector<std::string> found;
  for (const auto& [release, same] : holders) {
    const auto& choice = choices[same.first];
    found.push_back(cat("rank ", same.first, choice[2].empty() ? "" : " on host ",
                        printable(choice[2]),
                        same.count > 1 ? cat(" and ", same.count - 1, " more have") : " has",
                        " libhorovod ", printable(choice[1]), " (", printable(choice[3]), ")"));
  }
  return failed_precondition(cat("the ranks have different versions: ", join(found, "; "),
                                 "; install the same major and minor version on all hosts"));
}

// Line numbers in a record.
constexpr size_t kDeviceOperations = 6, kHasGpu = 7;

// A flag that must be equal on all ranks, and its line in a record.
struct SharedFlag {
  size_t line;
  const char* variable;
  const char* advice;
};
constexpr SharedFlag kSharedFlags[] = {
    // A rank that encrypts cannot communicate with a rank that does not.
    {4, "HOROVOD_ENCRYPT", "set it alike on all ranks, as horovodrun --encrypt does"},
    // With different values, the ranks would run one batch by different algorithms.
    {5, "HOROVOD_REPRODUCIBLE", "set it alike on all ranks"}};

std::string holder_of(const std::vector<std::vector<std::string>>& choices, size_t rank) {
  const std::string& host = choices[rank][2];
  return cat("rank ", rank, host.empty() ? "" : " on host ", printable(host), " has ");
}
std::string holder_of(const std::vector<std::vector<std::string>>& choices, size_t rank,
                      size_t line) {
  return cat(holder_of(choices, rank), choices[rank][line] == "1" ? "1" : "0");
}

Status compare_flags(const std::vector<std::vector<std::string>>& choices) {
  for (const SharedFlag& flag : kSharedFlags) {
    for (size_t rank = 1; rank < choices.size(); ++rank) {
      if ((choices[rank][flag.line] == "1") == (choices[0][flag.line] == "1")) continue;
      return failed_precondition(
          cat(flag.variable, " differs between the ranks: ", holder_of(choices, 0, flag.line), ", ",
              holder_of(choices, rank, flag.line), "; ", flag.advice));
    }
  }
  return {};
}

Status compare_device_operations(const std::vector<std::vector<std::string>>& choices) {
  const auto named = [&](size_t rank) {
    const std::string& operations = choices[rank][kDeviceOperations];
    return operations == "trial" ? "no value" : operations;
  };
  for (size_t rank = 1; rank < choices.size(); ++rank) {
    if (choices[rank][kDeviceOperations] == choices[0][kDeviceOperations]) continue;
    return failed_precondition(
        cat("HOROVOD_GPU_OPERATIONS differs between the ranks: ", holder_of(choices, 0),
            printable(named(0)), ", ", holder_of(choices, rank), printable(named(rank)),
            "; set it alike on all ranks, or on none"));
  }
  return {};
}

bool opens_devices(const std::vector<std::vector<std::string>>& choices) {
  bool has_gpu = false;
  for (const auto& choice : choices) {
    if (choice[kDeviceOperations] != "trial" || choice[kHasGpu] == "file") return false;
    has_gpu |= choice[kHasGpu] == "driver";
  }
  return has_gpu;
}

// The lowest rank that has arrived names the missing ranks.
template <typename HasCome>
void warn_of_late_ranks(const Identity& identity, double seconds, const std::string& called,
                        std::span<const int32_t> ranks, HasCome has_come) {
  bool is_missing = false, is_first = true;
  const Status late = collectives::late_ranks(
      identity.rank, identity.size,
      cat(called, " for ", std::lround(seconds), " s, and the others wait there"),
      [&](int32_t other) {
        const bool is_there = has_come(other);
        is_missing |= !is_there;
        is_first &= !is_there || other > identity.rank;
        return is_there;
      },
      ranks);
  if (is_missing && is_first) log::warning(late.message());
}

}  // namespace

Result<bool> compare_backends(const std::vector<std::string>& records) {
  std::map<std::string, std::vector<int32_t>> ranks;
  std::vector<std::vector<std::string>> choices;
  for (size_t rank = 0; rank < records.size(); ++rank) {
    if (records[rank].empty() || records[rank].front() != kChosen) {
      const std::string why = records[rank].substr(std::min<size_t>(records[rank].size(), 1));
      const std::string name = cat("rank ", rank);
      return unavailable(why.starts_with(cat(name, " "))
                             ? printable(why, kLongestTrouble)
                             : cat(name, ": ", printable(why, kLongestTrouble)));
    }
    choices.push_back(split(std::string_view(records[rank]).substr(1), '\n'));
    choices.back().resize(8);
    ranks[choices.back()[0]].push_back(static_cast<int32_t>(rank));
  }
  HVD_RETURN_IF_ERROR(compare_versions(choices));
  HVD_RETURN_IF_ERROR(compare_flags(choices));
  HVD_RETURN_IF_ERROR(compare_device_operations(choices));
  if (ranks.size() < 2) return opens_devices(choices);
  std::string found;
  for (const auto& [words, those] : ranks) {
    found += cat(found.empty() ? "" : "; ", who_has(those), printable(words));
  }
  return failed_precondition(cat("the ranks have chosen different backends: ", found,
                                 "; set HOROVOD_CONTROLLER and HOROVOD_CPU_OPERATIONS alike on all "
                                 "ranks"));
}

Result<bool> agree_on_backends(const PluginHost& host, const Identity& identity,
                               const Result<std::string>& own, Deadline deadline, bool is_watched,
                               std::span<const int32_t> ranks) {
  if (identity.size == 1) {
    HVD_ASSIGN_OR_RETURN(const std::string words, own);
    return compare_backends({kChosen + words});
  }
  const auto limit = std::lround(deadline.is_never() ? 0 : deadline.seconds_left());
  const std::string sent = own.ok() ? kChosen + own.value() : kInTrouble + own.error().message();
  const auto exchange = [&](const std::vector<int32_t>& wanted, double seconds) {
    std::vector<std::string> records;
    const int code = exchange_records(*host.vtable(), kBackendsName, identity.rank, identity.size,
                                      sent, wanted, seconds, &records);
    return std::pair(static_cast<Code>(code), std::move(records));
  };
  if (!own.ok()) {
    // Log the error now: the other ranks may arrive much later, and a user may read only this log.
    if (exchange({}, std::min(kSilentSeconds, deadline.seconds_left())).first == Code::kOk) {
      return own.error();
    }
    log::error(own.error().message());
    // Ranks that call hvd.init() within this time report the error too.
    static_cast<void>(exchange({}, std::min(kTroubleSeconds, deadline.seconds_left())));
    return own.error();
  }
  const std::string called =
      ranks.empty() ? "called hvd.init()" : cat("called hvd.init(comm=", list_text(ranks), ")");
  const double quiet =
      is_watched ? deadline.seconds_left() : std::min(kQuietSeconds, deadline.seconds_left() / 2);
  const auto has_come = [&](int32_t other) {
    return exchange({other}, collectives::kLookAgainSeconds).first == Code::kOk;
  };
  auto [code, records] = exchange({}, quiet);
  if (code == Code::kDeadlineExceeded && !is_watched) {
    warn_of_late_ranks(identity, quiet, called, ranks, has_come);
    std::tie(code, records) = exchange({}, deadline.seconds_left());
  }
  const std::string undone = cat(
      called, " within ", limit,
      " s; every rank of the job must, and --init-timeout (HOROVOD_INIT_TIMEOUT) may be raised");
  if (code == Code::kDeadlineExceeded) {
    return collectives::late_ranks(identity.rank, identity.size, undone, has_come, ranks);
  }
  // The rank that serves the store may have timed out a moment earlier.
  if (code != Code::kOk && deadline.seconds_left() < kGivenUpSeconds)
    return deadline_exceeded(cat("not every rank has ", undone));
  if (code != Code::kOk) {
    return Status(code,
                  "the job's store, through which the ranks exchange the names of their backends, "
                  "does not answer; where a rank serves it, the error of that rank says why");
  }
  return compare_backends(records);
}

}  // namespace hvd::runtime
