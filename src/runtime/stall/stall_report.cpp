#include "runtime/stall/stall_report.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "base/json_text.h"
#include "base/lost_peer.h"
#include "base/result.h"
#include "base/text.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {
namespace {

double as_seconds(double seconds) { return std::isfinite(seconds) && seconds > 0 ? seconds : 0; }

template <typename T>
Status decode_fields(ByteView message, T* fields, std::string_view what) {
  ByteReader in(message);
  in.get<StallMessageKind>();
  get(in, *fields);
  return in.finish(what);
}

constexpr size_t kNamesShown = 6;

std::string tenths(double seconds) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.1f", seconds);
  return text.data();
}

bool misses(const StallReport::Work& work, int32_t rank) {
  return std::binary_search(work.missing.begin(), work.missing.end(), rank);
}

// Returns, for example, "1: [allreduce.a, allreduce.b]".
std::string missing_line(const StallReport& report, int32_t rank) {
  std::string names;
  size_t count = 0;
  bool overdue = false;
  for (const auto& work : report.work) {
    if (!misses(work, rank)) continue;
    overdue |= work.overdue;
    if (count++ < kNamesShown) names += cat(names.empty() ? "" : ", ", printable(work.name.name));
  }
  return cat(rank, overdue ? "!" : "", ": [", names, count > kNamesShown ? " ..." : "", "]");
}

std::string where(const StallReport::Rank& rank) {
  if (rank.host.empty()) return cat("rank ", rank.rank);
  return cat("rank ", rank.rank, " on host ", printable(rank.host), ", pid ", rank.pid);
}

std::string details(const StallReport::Rank& rank) {
  std::string text = where(rank);
  if (!rank.answered) {
    text += ": does not answer; it is stopped, or its links to the other ranks are dead";
    if (rank.hidden.empty()) return text;
    std::vector<std::string> ranks;
    for (const int32_t each : rank.hidden) ranks.push_back(cat(each));
    return cat(text, "; the answers of these ranks come through it: ", join(ranks, ", "));
  }
  const StallAnswer& answer = rank.answer;
  if (answer.last_name.empty()) {
    text += ": has submitted nothing yet";
  } else {
    text += cat(": last submitted ", operation_text(answer.last_op, answer.last_name), " ",
                tenths(answer.last_seconds), " s ago");
    if (!answer.last_program.empty()) {
      text += cat(" in the compiled program ", printable(answer.last_program));
    }
  }
  if (answer.stack.empty()) return text + (answer.note.empty() ? "" : "; " + answer.note);
  text += "; Python, innermost call first:";
  for (const std::string& line : split(answer.stack, '\n')) {
    if (!trim(line).empty()) text += cat("\n    ", printable(trim(line), 1000));
  }
  return text;
}

std::string json_string(std::string_view text) { return cat("\"", json_escaped(text), "\""); }

std::string json_of(const StallReport::Work& work) {
  std::vector<std::string> ranks;
  for (const int32_t rank : work.missing) ranks.push_back(cat(rank));
  return cat("{\"name\":", json_string(work.name.name), ",\"op\":", json_string(op_name(work.op)),
             ",\"process_set\":", work.name.process_set, ",\"seconds\":", tenths(work.seconds),
             ",\"missing_ranks\":[", join(ranks, ","), "]}");
}

std::string json_of(const StallReport::Rank& rank) {
  const StallAnswer& answer = rank.answer;
  std::string last = "null";
  if (!answer.last_name.empty()) {
    last = cat(
        "{\"name\":", json_string(answer.last_name),
        ",\"op\":", json_string(op_name(answer.last_op)),
        ",\"seconds_ago\":", tenths(answer.last_seconds),
        answer.last_program.empty() ? "" : cat(",\"program\":", json_string(answer.last_program)),
        "}");
  }
  return cat("{\"rank\":", rank.rank, ",\"host\":", json_string(rank.host), ",\"pid\":", rank.pid,
             ",\"answered\":", rank.answered ? "true" : "false", ",\"last_submitted\":", last,
             ",\"stack\":", json_string(answer.stack), ",\"note\":", json_string(answer.note), "}");
}

// Returns, for example, "ranks 0-2,5".
std::string ranks_text(const std::vector<int32_t>& ranks) {
  std::vector<std::string> spans;
  for (size_t at = 0; at < ranks.size();) {
    size_t end = at + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    spans.push_back(end - at == 1 ? cat(ranks[at]) : cat(ranks[at], "-", ranks[end - 1]));
    at = end;
  }
  return cat(ranks.size() == 1 ? "rank " : "ranks ", join(spans, ","));
}

std::string text_of(const StallReport::Waiting& waiting) {
  return cat(ranks_text(waiting.ranks), waiting.ranks.size() == 1 ? " waits in " : " wait in ",
             operation_text(waiting.op, waiting.name.name),
             waiting.place.empty() ? "" : cat(", called at ", printable(waiting.place)));
}

std::string json_of(const StallReport::Waiting& waiting) {
  std::vector<std::string> ranks;
  for (const int32_t rank : waiting.ranks) ranks.push_back(cat(rank));
  return cat("{\"ranks\":[", join(ranks, ","), "],\"name\":", json_string(waiting.name.name),
             ",\"op\":", json_string(op_name(waiting.op)),
             ",\"place\":", json_string(waiting.place), "}");
}

// Returns whether each missing rank waits for other ranks, so that no rank is merely slow.
bool is_mutual(const StallReport& report) {
  return !report.missing.empty() &&
         std::ranges::all_of(report.missing, [&](const StallReport::Rank& rank) {
           return std::ranges::any_of(report.waiting, [&](const StallReport::Waiting& waiting) {
             return std::ranges::find(waiting.ranks, rank.rank) != waiting.ranks.end();
           });
         });
}

}  // namespace

Status peek_kind(ByteView message, StallMessageKind* kind) {
  ByteReader in(message);
  *kind = in.get<StallMessageKind>();
  if (in.failed() || *kind < StallMessageKind::kHello || *kind > StallMessageKind::kAnswer) {
    return invalid_argument("a message about stalls is of no known kind");
  }
  return {};
}

Status decode(ByteView message, StallHello* hello) {
  return decode_fields(message, hello, "a rank's hello");
}

Status decode(ByteView message, StallWaiting* waiting) {
  HVD_RETURN_IF_ERROR(decode_fields(message, waiting, "a report of waiting work"));
  for (auto& entry : waiting->entries) entry.seconds = as_seconds(entry.seconds);
  return {};
}

Status decode(ByteView message, StallAsk* ask) {
  return decode_fields(message, ask, "a question about waiting work");
}

Status decode(ByteView message, StallAnswer* answer) {
  HVD_RETURN_IF_ERROR(decode_fields(message, answer, "an answer about waiting work"));
  for (const StallState state : answer->states) {
    if (state > StallState::kExcused) {
      return invalid_argument("an answer about waiting work has an unknown state");
    }
  }
  answer->last_seconds = as_seconds(answer->last_seconds);
  return {};
}

bool StallReport::fatal() const {
  return std::any_of(work.begin(), work.end(), [](const Work& one) { return one.overdue; });
}

std::string text_of(const StallReport& report) {
  std::string text = cat(
      "Some tensors were submitted by a part of the ranks only, and have waited for the others "
      "for more than ",
      report.warning_seconds,
      " seconds. This is a deadlock when ranks submit "
      "different work or in a different order, and it lasts while a rank hangs or is much slower.\n"
      "Missing ranks:");
  for (const auto& rank : report.missing) text += "\n" + missing_line(report, rank.rank);
  for (const auto& rank : report.missing) text += "\n" + details(rank);
  for (size_t i = 0; i < std::min(report.waiting.size(), kNamesShown); ++i)
    text += "\n" + text_of(report.waiting[i]);
  if (report.waiting.size() > kNamesShown) {
    text += cat("\nand at ", report.waiting.size() - kNamesShown, " more places");
  }
  if (!report.last_common.empty()) {
    text += cat("\nThe last operation of all ranks was ",
                operation_text(report.last_common_op, report.last_common), ".");
  }
  if (is_mutual(report)) {
    text +=
        "\nEach missing rank waits for other ranks too, as ranks with different numbers of "
        "batches do: call hvd.join() after the last one, or give Keras's fit the same "
        "steps_per_epoch on all ranks.";
  }
  if (report.fatal()) {
    text += cat("\nThis lasts longer than the ", report.shutdown_seconds,
                " seconds of "
                "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS. Will shutdown.");
  }
  return text;
}

std::string json_of(const StallReport& report, double epoch_seconds) {
  std::vector<std::string> work;
  for (const auto& one : report.work) work.push_back(json_of(one));
  std::vector<std::string> ranks;
  for (const auto& one : report.missing) ranks.push_back(json_of(one));
  std::vector<std::string> waiting;
  for (const auto& one : report.waiting) waiting.push_back(json_of(one));
  const std::string common =
      report.last_common.empty()
          ? "null"
          : cat("{\"name\":", json_string(report.last_common),
                ",\"op\":", json_string(op_name(report.last_common_op)), "}");
  std::array<char, 64> time{};
  std::snprintf(time.data(), time.size(), "%.3f", epoch_seconds);
  return cat("{\"event\":\"stall\",\"time\":", time.data(),
             ",\"shutdown\":", report.fatal() ? "true" : "false",
             ",\"warning_seconds\":", report.warning_seconds, ",\"tensors\":[", join(work, ","),
             "],\"ranks\":[", join(ranks, ","), "],\"waiting\":[", join(waiting, ","),
             "],\"last_common\":", common, "}");
}

Status cause_of(const StallReport& report) {
  for (const auto& work : report.work) {
    if (!work.overdue) continue;
    const auto rank = std::find_if(report.missing.begin(), report.missing.end(),
                                   [&](const auto& one) { return misses(work, one.rank); });
    const size_t others = work.missing.size() - 1;
    return stalled_by(rank->rank, cat("'", printable(work.name.name), "'"),
                      cat(tenths(work.seconds), " s for ", where(*rank),
                          others == 0 ? std::string() : cat(", and ", others, " more"),
                          rank->answered ? ", which did not submit it" : ", which does not answer",
                          "; HOROVOD_STALL_SHUTDOWN_TIME_SECONDS ends the job after ",
                          report.shutdown_seconds, " seconds"));
  }
  return aborted("a stall");
}

}  // namespace hvd::runtime
