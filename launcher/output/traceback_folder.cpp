#include "launcher/output/traceback_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "launcher/output/line_folder.h"
#include "launcher/output/traceback.h"

namespace hvd::launcher {
namespace {

std::string_view content(std::string_view line, size_t tag) {
  return trim(line.substr(std::min(tag, line.size())));
}

// The classes by which frameworks raise the errors of Horovod's operations, with Horovod's message.
bool is_of_horovod(std::string_view exception, std::string_view message) {
  const std::string_view name = exception.substr(0, exception.find(':'));
  if (name.ends_with("HorovodInternalError")) return true;
  const bool is_of_framework = name.find("errors_impl.") != std::string_view::npos ||
                               name.ends_with("JaxRuntimeError") ||
                               name.ends_with("XlaRuntimeError");
  return is_of_framework && message.find("Horovod") != std::string_view::npos;
}

// JAX and TensorFlow print such lines behind the message.
bool is_note(std::string_view line) {
  return line.starts_with("[[{{node ") || line.starts_with("For simplicity, JAX has removed") ||
         line == "--------------------";
}

template <typename Lines>
std::vector<std::string_view> views_of(const Lines& held) {
  std::vector<std::string_view> lines;
  for (const auto& line : held) {
    const std::string_view text = line.text;
    lines.push_back(text.substr(0, text.find_last_not_of("\r\n") + 1));
  }
  return lines;
}

}  // namespace

std::optional<int> accused_by(std::string_view message) {
  constexpr std::string_view kRank = "rank ";
  for (size_t at = 0; (at = message.find(kRank, at)) != std::string_view::npos;) {
    at += kRank.size();
    size_t end = at;
    while (end < message.size() && message[end] >= '0' && message[end] <= '9') ++end;
    const auto rank = parse_int(message.substr(at, end - at));
    std::string_view rest = message.substr(end);
    if (rest.starts_with(" on host ")) rest.remove_prefix(std::min(rest.find(' ', 9), rest.size()));
    if (rank && (rest.starts_with(" was lost: ") || rest.starts_with(" has ended its program"))) {
      return static_cast<int>(*rank);
    }
  }
  return {};
}

std::string TracebackFolder::add(int number, std::string_view lines, size_t tag, bool is_begun,
                                 Clock::time_point now) {
  Rank& rank = ranks_[number];
  std::string shown;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end);
    rank.has_written = true;
    const std::string_view text = line.substr(std::min(tag, line.size()));
    const bool begins = text.starts_with("Traceback (most recent call last):") ||
                        text.starts_with("  + Exception Group Traceback");
    if (std::exchange(is_begun, false) || (rank.held.empty() && !begins)) {
      shown += line;
      continue;
    }
    if (rank.held.empty()) rank.since = now;
    rank.held.push_back({std::string(line), tag});
    rank.held_bytes += line.size();
    if (rank.held.size() >= kMaxHeldLines || rank.held_bytes >= kMaxHeldBytes)
      shown += release(rank, {});
  }
  return shown;
}

void TracebackFolder::output_ended(int number) { ranks_[number].is_output_ended = true; }

void TracebackFolder::ended(int number, End end) {
  Rank& rank = ranks_[number];
  if (!rank.end) rank.end = end;
}

bool TracebackFolder::is_holding(int number) const {
  const auto found = ranks_.find(number);
  return found != ranks_.end() && !found->second.held.empty();
}

// Once nothing more comes from the rank: finds the traceback that has ended it, and the rank that it accuses.
void TracebackFolder::judge(int number, Rank& rank) {
  if (rank.held.empty() || rank.end->is_success || std::exchange(rank.is_judged, true)) return;
  const size_t tag = rank.held.front().tag;
  const std::vector<std::string_view> lines = views_of(rank.held);
  const std::vector<Traceback> all = tracebacks_of(lines, tag);
  const Traceback* const fatal = last_fatal(all);
  if (fatal == nullptr) return;
  const Traceback* first = fatal;
  while (first->is_chained && first != all.data()) --first;
  std::optional<int> accused;
  // An error of the user's among those of a chain is no consequence.
  for (const Traceback* each = first; each <= fatal; ++each) {
    if (each->name == each->end) return;
    const std::string_view message = content(lines[each->exception], tag);
    accused = accused_by(message);
    if (!accused || *accused == number || !is_of_horovod(content(lines[each->name], tag), message))
      return;
  }
  rank.accused = accused;
  rank.fold_begin = first->begin;
  rank.fold_end = fatal->end;
  while (rank.fold_end < lines.size() && is_note(content(lines[rank.fold_end], tag)))
    ++rank.fold_end;
}

TracebackFolder::Verdict TracebackFolder::verdict_on(int number) {
  Rank& rank = ranks_[number];
  if (!rank.end || !rank.is_output_ended) return Verdict::kWait;
  judge(number, rank);
  std::set<int> path = {number};
  for (std::optional<int> cause = rank.accused; cause;) {
    if (const auto root = root_of_.find(*cause); root != root_of_.end()) cause = root->second;
    if (*cause == number) return Verdict::kShow;             // they accuse each other
    if (!path.insert(*cause).second) return Verdict::kWait;  // others do
    const auto found = ranks_.find(*cause);
    if (found == ranks_.end() || !found->second.end) return Verdict::kWait;
    Rank& other = found->second;
    if (other.end->is_failure && !other.end->is_mute && !other.is_output_ended)
      return Verdict::kWait;
    if (other.is_output_ended) judge(*cause, other);
    if (!other.accused || explained_.contains(*cause)) return verdict_about(number, *cause);
    cause = other.accused;
  }
  return Verdict::kShow;
}

// The rank has ended because of another one, which accuses none.
TracebackFolder::Verdict TracebackFolder::verdict_about(int number, int cause) {
  const Rank& other = ranks_[cause];
  const bool has_reason = other.has_written && !other.end->is_mute;
  if (!other.end->is_failure) return Verdict::kShow;
  if (!has_reason && explained_.insert(cause).second) return Verdict::kShow;
  root_of_[number] = cause;
  return Verdict::kFold;
}

std::vector<TracebackFolder::Shown> TracebackFolder::take(Clock::time_point now, bool all) {
  std::vector<Shown> shown;
  const auto pass = [&](bool is_forced) {
    bool has_changed = false;
    for (auto& [number, rank] : ranks_) {
      if (rank.held.empty()) continue;
      Verdict verdict = verdict_on(number);
      const bool is_late = all || now - rank.since >= kHeldFor;
      if (verdict == Verdict::kWait && is_forced && is_late) verdict = Verdict::kShow;
      if (verdict == Verdict::kWait) continue;
      has_changed = true;
      std::string lines = settle(number, rank, verdict, now);
      if (!lines.empty()) shown.push_back({number, std::move(lines)});
    }
    return has_changed;
  };
  // One that is shown or folded may settle another.
  do {
    while (pass(false)) continue;
  } while (pass(true));
  return shown;
}

// Returns what is shown of the held lines. Frames of Horovod stay where the traceback may not be the rank's end.
std::string TracebackFolder::settle(int number, Rank& rank, Verdict verdict,
                                    Clock::time_point now) {
  std::vector<bool> is_shown(rank.held.size(), true);
  const auto hide = [&](size_t begin, size_t end) {
    std::fill(is_shown.begin() + static_cast<long>(begin),
              is_shown.begin() + static_cast<long>(end), false);
  };
  if (verdict == Verdict::kFold) {
    hide(rank.fold_begin, rank.fold_end);
    folded_[root_of_[number]].push_back(number);
    if (!folded_since_) folded_since_ = now;
    return release(rank, is_shown);
  }
  if (rank.accused) explained_.insert(number);
  const std::vector<TracebackFrame> frames = frames_of(views_of(rank.held));
  const bool ends_rank = rank.end && !rank.end->is_success && rank.is_output_ended;
  if (!ends_rank || frames.empty()) return release(rank, {});
  const TracebackFrame* const users = &users_frame(frames);
  for (const TracebackFrame& frame : frames) {
    if (&frame != users && is_of_horovod(frame)) hide(frame.begin, frame.empty_end);
  }
  return release(rank, is_shown);
}

std::string TracebackFolder::take_sentence(Clock::time_point now, bool all) {
  if (!folded_since_ || (!all && now - *folded_since_ < kHeldFor)) return {};
  folded_since_.reset();
  std::string sentence;
  for (auto& [cause, ranks] : std::exchange(folded_, {})) {
    std::sort(ranks.begin(), ranks.end());
    std::string names = ranks_text(ranks);
    for (size_t at = 0; (at = names.find(',', at)) != std::string::npos; at += 2)
      names.replace(at, 1, ", ");
    if (!sentence.empty()) sentence += "; ";
    sentence += ranks.size() == 1
                    ? fmt::format("rank {} stopped because of rank {}", names, cause)
                    : fmt::format("ranks {} stopped because of rank {}", names, cause);
  }
  return sentence;
}

Deadline TracebackFolder::deadline() const {
  Deadline next = Deadline::never();
  const auto consider = [&](Clock::time_point since) {
    if (since + kHeldFor < next.time()) next = Deadline::at(since + kHeldFor);
  };
  for (const auto& [number, rank] : ranks_) {
    if (!rank.held.empty()) consider(rank.since);
  }
  if (folded_since_) consider(*folded_since_);
  return next;
}

// Returns the held lines of which `is_shown` is true, all if it is empty, and holds nothing.
std::string TracebackFolder::release(Rank& rank, const std::vector<bool>& is_shown) {
  std::string text;
  for (size_t at = 0; at < rank.held.size(); ++at) {
    if (is_shown.empty() || is_shown[at]) text += rank.held[at].text;
  }
  rank.held.clear();
  rank.held_bytes = 0;
  return text;
}

}  // namespace hvd::launcher
