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
  return trim(without_rank_of_torch(line.substr(std::min(tag, line.size()))));
}

// The exception classes in which frameworks raise Horovod's errors; their messages have several lines.
bool is_of_framework(std::string_view exception) {
  const std::string_view name = exception.substr(0, exception.find(':'));
  return name.find("errors_impl.") != std::string_view::npos || name.ends_with("JaxRuntimeError") ||
         name.ends_with("XlaRuntimeError");
}

// Returns whether the exception is from a Horovod operation, with Horovod's message.
bool is_of_horovod(std::string_view exception, std::string_view message) {
  const std::string_view name = exception.substr(0, exception.find(':'));
  if (name.ends_with("HorovodInternalError")) return true;
  return is_of_framework(exception) && message.find("Horovod") != std::string_view::npos;
}

// JAX and TensorFlow print such lines after the message.
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
    if (std::exchange(is_begun, false))
      shown += line;
    else
      shown += take_line(number, rank, line, tag, now);
  }
  return shown;
}

// Takes one line. Returns the text that can be shown now.
std::string TracebackFolder::take_line(int number, Rank& rank, std::string_view line, size_t tag,
                                       Clock::time_point now) {
  const std::string_view raw = line.substr(std::min(tag, line.size()));
  const std::string_view text =
      without_rank_of_torch(raw.substr(0, raw.find_last_not_of("\r\n") + 1));
  std::string shown;
  if (!rank.held.empty() && !may_belong(rank, text)) {
    if (rank.is_consequence) return std::string(line);  // the traceback may still be omitted
    shown = release(rank, {});
  }
  const bool begins = text.starts_with("Traceback (most recent call last):") ||
                      text.starts_with("  + Exception Group Traceback");
  if (rank.held.empty() && !begins) return shown + std::string(line);
  if (rank.held.empty()) rank.since = now;
  rank.held.push_back({std::string(line), tag});
  rank.held_bytes += line.size();
  if (rank.held.size() >= kMaxHeldLines || rank.held_bytes >= kMaxHeldBytes)
    return shown + release(rank, {});
  if (!text.starts_with(' ') && !begins) rank.is_consequence = is_complete(number, rank);
  return shown;
}

// Returns whether the line may belong to the held traceback, or to a traceback that was raised while it was handled.
bool TracebackFolder::may_belong(const Rank& rank, std::string_view text) {
  if (trim(text).empty() || links_tracebacks(text) || is_note(trim(text))) return true;
  const size_t tag = rank.held.front().tag;
  const std::vector<std::string_view> lines = views_of(rank.held);
  const std::vector<Traceback> all = tracebacks_of(lines, tag);
  if (all.empty() || all.back().name == lines.size()) return true;  // the exception has not arrived
  if (links_tracebacks(content(lines.back(), tag))) return true;
  for (size_t at = all.back().end; at < lines.size(); ++at) {
    if (links_tracebacks(content(lines[at], tag))) return true;
  }
  return !rank.is_consequence && is_of_framework(content(lines[all.back().name], tag));
}

// Returns whether the rank's traceback is complete and accuses another rank.
bool TracebackFolder::is_complete(int number, Rank& rank) {
  rank.is_judged = false;
  rank.accused.reset();
  judge(number, rank);
  rank.is_judged = false;
  return rank.accused.has_value();
}

// Returns whether the rank has written its own exception, which may end it.
bool TracebackFolder::raises(const Rank& rank) {
  if (rank.held.empty() || rank.is_consequence) return false;
  const std::vector<std::string_view> lines = views_of(rank.held);
  const std::vector<Traceback> all = tracebacks_of(lines, rank.held.front().tag);
  const Traceback* const fatal = last_fatal(all);
  return fatal != nullptr && fatal->name < lines.size();
}

void TracebackFolder::output_ended(int number) { ranks_[number].is_output_ended = true; }

void TracebackFolder::ended(int number, End end) {
  Rank& rank = ranks_[number];
  if (!rank.end) rank.end = end;
  if (!end.is_success) return;
  rank.accused.reset();  // the rank has caught the exception
  rank.is_consequence = false;
}

bool TracebackFolder::is_holding(int number) const {
  const auto found = ranks_.find(number);
  return found != ranks_.end() && !found->second.held.empty();
}

// Finds the traceback that ends the rank, and the rank that it accuses.
void TracebackFolder::judge(int number, Rank& rank) {
  const bool is_survived = rank.end && rank.end->is_success;
  if (rank.held.empty() || is_survived || std::exchange(rank.is_judged, true)) return;
  const size_t tag = rank.held.front().tag;
  const std::vector<std::string_view> lines = views_of(rank.held);
  const std::vector<Traceback> all = tracebacks_of(lines, tag);
  const Traceback* const fatal = last_fatal(all);
  if (fatal == nullptr) return;
  const Traceback* first = fatal;
  while (first->is_chained && first != all.data()) --first;
  std::optional<int> accused;
  // If a chain contains the user's own error, another rank's failure is not its cause.
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

TracebackFolder::Verdict TracebackFolder::verdict_on(int number, bool may_wait) {
  Rank& rank = ranks_[number];
  const bool has_ended = rank.end && rank.is_output_ended;
  if (!has_ended && !rank.is_consequence) return Verdict::kWait;
  judge(number, rank);
  std::set<int> path = {number};
  for (std::optional<int> cause = rank.accused; cause;) {
    if (const auto root = root_of_.find(*cause); root != root_of_.end()) cause = root->second;
    if (*cause == number) return Verdict::kShow;             // both ranks accuse each other
    if (!path.insert(*cause).second) return Verdict::kWait;  // other ranks accuse each other
    if (const auto verdict = verdict_by(number, *cause, may_wait && !has_ended)) return *verdict;
    cause = ranks_[*cause].accused;
  }
  return Verdict::kShow;
}

// Decides by the output of the accused rank. Returns nullopt if that rank itself accuses another rank.
std::optional<TracebackFolder::Verdict> TracebackFolder::verdict_by(int number, int cause,
                                                                    bool may_wait) {
  const auto found = ranks_.find(cause);
  if (found == ranks_.end()) return Verdict::kWait;
  Rank& other = found->second;
  if (!other.end && !other.is_consequence) {
    // The accused rank ends soon: other ranks have noticed its failure, and it has printed the reason.
    if (!other.has_raised && !raises(other)) return Verdict::kWait;
    root_of_[number] = cause;
    return Verdict::kFold;
  }
  const bool prints_reason = other.end && other.end->is_failure && !other.end->is_mute;
  if (prints_reason && !other.is_output_ended) return Verdict::kWait;
  if (other.is_output_ended || other.is_consequence) judge(cause, other);
  if (!other.accused || explained_.contains(cause)) return verdict_about(number, cause, may_wait);
  return {};
}

// Decides about a rank that accuses `cause`, which itself accuses no rank. May wait for the rank's end: before it, a
// shown traceback keeps Horovod's frames.
TracebackFolder::Verdict TracebackFolder::verdict_about(int number, int cause, bool may_wait) {
  const Rank& other = ranks_[cause];
  const bool has_reason = other.has_written && !(other.end && other.end->is_mute);
  if (other.end && !other.end->is_failure) return Verdict::kShow;
  if (!has_reason && !explained_.contains(cause)) {
    if (may_wait) return Verdict::kWait;
    explained_.insert(cause);
    return Verdict::kShow;
  }
  root_of_[number] = cause;
  return Verdict::kFold;
}

std::vector<TracebackFolder::Shown> TracebackFolder::take(Clock::time_point now, bool all) {
  std::vector<Shown> shown;
  take_caught(now, all, shown);
  const auto pass = [&](bool is_forced) {
    bool has_changed = false;
    for (auto& [number, rank] : ranks_) {
      if (rank.held.empty()) continue;
      const bool may_wait = !is_forced || (!all && now - rank.since < kHeldFor);
      Verdict verdict = verdict_on(number, may_wait);
      if (verdict == Verdict::kWait && !may_wait) verdict = Verdict::kShow;
      if (verdict == Verdict::kWait) continue;
      has_changed = true;
      std::string lines = settle(number, rank, verdict, now);
      if (!lines.empty()) shown.push_back({number, std::move(lines)});
    }
    return has_changed;
  };
  // A traceback that is shown or folded may decide about another traceback.
  do {
    while (pass(false)) continue;
  } while (pass(true));
  return shown;
}

// Shows omitted tracebacks of ranks that continue.
void TracebackFolder::take_caught(Clock::time_point now, bool all, std::vector<Shown>& shown) {
  for (auto& [number, rank] : ranks_) {
    if (rank.left_out.empty()) continue;
    const bool is_caught =
        rank.end ? rank.end->is_success : !all && now - rank.left_out_at >= kCaughtAfter;
    if (is_caught) shown.push_back({number, rank.left_out});
    if (is_caught || rank.end) rank.left_out.clear();
  }
}

// Returns the held lines to show. Keeps Horovod's frames if the rank may write another traceback.
std::string TracebackFolder::settle(int number, Rank& rank, Verdict verdict,
                                    Clock::time_point now) {
  std::vector<bool> is_shown(rank.held.size(), true);
  const auto hide = [&](size_t begin, size_t end) {
    std::fill(is_shown.begin() + static_cast<long>(begin),
              is_shown.begin() + static_cast<long>(end), false);
  };
  if (verdict == Verdict::kFold) {
    hide(rank.fold_begin, rank.fold_end);
    rank.left_out.clear();
    for (size_t at = rank.fold_begin; at < rank.fold_end; ++at) rank.left_out += rank.held[at].text;
    rank.left_out_at = now;
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
  const auto consider = [&](Clock::time_point time) {
    if (time < next.time()) next = Deadline::at(time);
  };
  for (const auto& [number, rank] : ranks_) {
    if (!rank.held.empty()) consider(rank.since + kHeldFor);
    if (!rank.left_out.empty()) consider(rank.left_out_at + kCaughtAfter);
  }
  if (folded_since_) consider(*folded_since_ + kHeldFor);
  return next;
}

// Returns the held lines for which `is_shown` is true (all lines if it is empty), and clears the held lines.
std::string TracebackFolder::release(Rank& rank, const std::vector<bool>& is_shown) {
  std::string text;
  for (size_t at = 0; at < rank.held.size(); ++at) {
    if (is_shown.empty() || is_shown[at]) text += rank.held[at].text;
  }
  rank.has_raised |= raises(rank);
  rank.held.clear();
  rank.held_bytes = 0;
  rank.is_consequence = false;
  return text;
}

}  // namespace hvd::launcher
