#include "launcher/output/line_router.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/json_text.h"
#include "base/log/log.h"
#include "base/text.h"
#include "launcher/hosts/host_table.h"
#include "launcher/output/terminal_text.h"
#include "launcher/output/traceback.h"

namespace hvd::launcher {
namespace {

// The ends of ranks that arrive within this time are handled together.
constexpr std::chrono::milliseconds kSettledAfter{20};

// Returns the tag in a report if the output has JSON objects.
std::string plain_tag(int rank) { return cat("[", rank, "]<stderr>:"); }

void replace_all(std::string& text, std::string_view word, std::string_view value) {
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += value.size())
    text.replace(at, word.size(), value);
}

}  // namespace

std::string line_tag(const HostTable& hosts, const std::vector<int>& ranks, OutputStream stream,
                     const LineStyle& style) {
  const Slot& slot = hosts.rank(ranks[0]).slot();
  std::string host = hosts.host(slot.host).name();
  const char* name = stream == OutputStream::kStdout ? "stdout" : "stderr";
  if (style.format == LineFormat::kJson) {
    return cat(",\"rank\":", slot.rank, ",\"host\":\"", json_escaped(host), "\",\"stream\":\"",
               name, "\",");
  }
  if (style.tag == "none") return "";
  if (style.tag.empty()) return cat("[", ranks_text(ranks), "]<", name, ">:");
  const bool is_one_host = std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
    return hosts.rank(rank).slot().host == slot.host;
  });
  if (!is_one_host) host = "*";
  std::string tag = style.tag;
  replace_all(tag, "{rank}", ranks_text(ranks));
  replace_all(tag, "{host}", host);
  replace_all(tag, "{local_rank}", ranks.size() == 1 ? cat(slot.local_rank) : "*");
  replace_all(tag, "{stream}", name);
  return tag + ": ";
}

LineRouter::LineRouter(const HostTable& hosts, LineStyle style, LineSinks& sinks)
    : hosts_(hosts), style_(std::move(style)), sinks_(sinks) {
  if (style_.folds_tracebacks) tracebacks_ = std::make_unique<TracebackFolder>();
  if (style_.folds) {
    for (Folding& each : folding_) each.lines = std::make_unique<LineFolder>(0);
  }
  grow();
}

void LineRouter::grow() {
  for (int rank = static_cast<int>(channels_.size() / 2); rank < hosts_.size(); ++rank) {
    for (const auto stream : {OutputStream::kStdout, OutputStream::kStderr}) {
      channels_.emplace_back(shown_tag({rank}, stream), style_.format);
      if (style_.format == LineFormat::kJson) channels_.back().plain.set_tag(plain_tag(rank));
    }
  }
  for (Folding& each : folding_) {
    if (each.lines) each.lines->grow(hosts_.size());
  }
}

size_t LineRouter::place(int rank, OutputStream stream) const {
  const size_t place = 2 * static_cast<size_t>(rank) + (stream == OutputStream::kStderr ? 1 : 0);
  HVD_CHECK(rank >= 0 && place < channels_.size());
  return place;
}

bool LineRouter::is_shown(int rank) const {
  const auto index = static_cast<size_t>(rank);
  return style_.is_shown.empty() || (index < style_.is_shown.size() && style_.is_shown[index]);
}

std::string LineRouter::shown_tag(const std::vector<int>& ranks, OutputStream stream) const {
  // Red is for errors, and black or white may be the background.
  constexpr int kColors[] = {36, 33, 32, 35, 34};
  std::string tag = line_tag(hosts_, ranks, stream, style_);
  const bool has_color =
      stream == OutputStream::kStdout ? style_.colors_stdout : style_.colors_stderr;
  if (!has_color || tag.empty() || style_.format != LineFormat::kText) return tag;
  return cat("\x1b[", kColors[static_cast<size_t>(ranks[0]) % std::size(kColors)], "m", tag,
             kColorEnd);
}

std::string LineRouter::stamped(const std::string& tag, const Moment& now) const {
  if (style_.format == LineFormat::kJson) return json_time(now.wall) + tag;
  std::string filled =
      style_.has_timestamps ? time_text("%a %b %e %H:%M:%S %Y", TimeZone::kLocal, now.wall) : "";
  filled += tag;
  if (tag.find("{time}") != std::string::npos)
    replace_all(filled, "{time}", iso_time(TimeZone::kLocal, now.wall));
  return filled;
}

void LineRouter::stamp(Channel& channel, const Moment& now) {
  const bool has_time = style_.has_timestamps || style_.tag.find("{time}") != std::string::npos;
  if (style_.format == LineFormat::kText && !has_time) return;
  channel.tagger.set_tag(stamped(channel.tag, now));
}

size_t LineRouter::tag_size(int rank) const {
  if (style_.format == LineFormat::kJson) return plain_tag(rank).size();
  return stamped(channels_[place(rank, OutputStream::kStderr)].tag, {}).size();
}

std::string LineRouter::last_errors(int rank) const {
  return last_lines(channels_[place(rank, OutputStream::kStderr)].recent, tag_size(rank));
}

std::string LineRouter::last_exception(int rank) const {
  return exception_of(channels_[place(rank, OutputStream::kStderr)].recent, tag_size(rank));
}

bool LineRouter::is_holding_back(int rank, OutputStream stream) const {
  return tracebacks_ && stream == OutputStream::kStderr && tracebacks_->is_holding(rank);
}

void LineRouter::write(int rank, OutputStream stream, ByteView bytes, const Moment& now) {
  Channel& from = channel(rank, stream);
  stamp(from, now);
  std::string lines;
  lines.reserve(bytes.size() + 64);
  const std::string prefix = from.tagger.prefix();
  from.tagger.feed(as_text(bytes), lines);
  keep(rank, stream, lines, bytes);
  if (is_shown(rank) && folding(stream).lines) return fold(rank, stream, bytes, now);
  if (is_shown(rank)) {
    lines = sinks_.take_bars(rank, stream, prefix, std::move(lines));
    lines = pass(rank, stream, std::move(lines), sinks_.has_begun(rank, stream), now.time);
  } else {
    lines.clear();
  }
  // This also confirms the bytes of an unfinished line: kMaxLine limits their number.
  sinks_.show({rank, stream, prefix, std::move(lines), {{rank, bytes.size()}}});
}

void LineRouter::end(int rank, OutputStream stream, const Moment& now) {
  Channel& from = channel(rank, stream);
  stamp(from, now);
  const std::string prefix = from.tagger.prefix();
  const std::string held = from.tagger.held();
  std::string lines;
  from.tagger.finish(lines);
  keep(rank, stream, lines, {});
  if (is_shown(rank) && folding(stream).lines) {
    if (!lines.empty()) fold(rank, stream, {}, now);
  } else if (is_shown(rank)) {
    lines = pass(rank, stream, std::move(lines), sinks_.has_begun(rank, stream), now.time);
    sinks_.show_last({rank, stream, prefix, std::move(lines)}, held);
  }
  if (!tracebacks_ || stream != OutputStream::kStderr) return;
  tracebacks_->output_ended(rank);
  settle_by(now.time + kSettledAfter);
}

void LineRouter::keep(int rank, OutputStream stream, std::string_view lines, ByteView bytes) {
  Channel& channel = this->channel(rank, stream);
  constexpr size_t kRecent = 16 * 1024;  // enough for a traceback through a framework
  if (!lines.empty()) sinks_.keep(rank, stream, lines, channel.tag.ends_with(kColorEnd));
  if (stream != OutputStream::kStderr) return;
  std::string text;
  if (style_.format == LineFormat::kJson) {
    // A sentence of the launcher must not contain JSON objects.
    if (bytes.empty())
      channel.plain.finish(text);
    else
      channel.plain.feed(as_text(bytes), text);
    lines = text;
  }
  channel.recent.append(lines.substr(lines.size() - std::min(lines.size(), kRecent)));
  if (channel.recent.size() > 2 * kRecent) {
    channel.recent.erase(0, channel.recent.size() - kRecent);
  }
}

std::string LineRouter::pass(int rank, OutputStream stream, std::string lines, bool is_begun,
                             Clock::time_point now) {
  if (!tracebacks_ || stream != OutputStream::kStderr || lines.empty()) return lines;
  const size_t tag = style_.folds ? 0 : tag_size(rank);
  std::string shown = tracebacks_->add(rank, lines, tag, is_begun, now);
  if (tracebacks_->is_holding(rank)) settle_by(now + kHeldFor);
  return shown;
}

void LineRouter::rank_ended(int rank, TracebackFolder::End how, Clock::time_point now) {
  if (!tracebacks_) return;
  tracebacks_->ended(rank, how);
  settle_by(now + kSettledAfter);
}

void LineRouter::settle_tracebacks(bool all, const Moment& now) {
  if (!tracebacks_) return;
  for (const auto& [rank, lines] : tracebacks_->take(now.time, all)) {
    if (style_.folds)
      fold_lines(rank, OutputStream::kStderr, lines, now.time);
    else
      sinks_.show({rank, OutputStream::kStderr, "", lines});
  }
  unfold(OutputStream::kStderr, false, now);
  const std::string sentence = tracebacks_->take_sentence(now.time, all);
  if (!sentence.empty()) sinks_.print(cat(sentence, " (--verbose prints all tracebacks)"));
  settle_by(tracebacks_->deadline().time());
}

void LineRouter::settle_by(Clock::time_point time) {
  settled_by_ = std::min(settled_by_, time);
  sinks_.wake_by(settled_by_);
}

void LineRouter::fold(int rank, OutputStream stream, ByteView bytes, const Moment& now) {
  Channel& from = channel(rank, stream);
  std::string lines;
  if (bytes.empty())
    from.plain.finish(lines);
  else
    from.plain.feed(as_text(bytes), lines);
  lines = pass(rank, stream, std::move(lines), false, now.time);
  fold_lines(rank, stream, lines, now.time);
  if (lines.empty() || !folding(stream).lines->consume(rank, bytes.size()))
    sinks_.show({rank, stream, "", "", {{rank, bytes.size()}}});
  if (!lines.empty()) unfold(stream, false, now);
}

void LineRouter::fold_lines(int rank, OutputStream stream, std::string_view lines,
                            Clock::time_point now) {
  while (!lines.empty()) folding(stream).lines->add(rank, take_row(lines), now);
}

void LineRouter::unfold(OutputStream stream, bool all, const Moment& now) {
  Folding& folding = this->folding(stream);
  if (!folding.lines) return;
  FoldedLine folded;
  while (folding.lines->take(now.time, all, folded)) {
    const int rank = folded.ranks.size() == 1 ? folded.ranks[0] : -1;
    sinks_.show({rank, stream, "", stamped(shown_tag(folded.ranks, stream), now) + folded.line,
                 std::move(folded.consumed)});
  }
  if (folding.lines->is_empty() || folding.due != Clock::time_point::max()) return;
  folding.due = now.time + kFoldFor;
  sinks_.wake_by(folding.due);
}

Clock::time_point LineRouter::due() const {
  return std::min({settled_by_, folding_[0].due, folding_[1].due});
}

void LineRouter::on_time(const Moment& now) {
  const Clock::time_point due = this->due();
  if (due == settled_by_) {
    settled_by_ = Clock::time_point::max();
    return settle_tracebacks(false, now);
  }
  const auto stream = due == folding_[0].due ? OutputStream::kStdout : OutputStream::kStderr;
  folding(stream).due = Clock::time_point::max();
  unfold(stream, false, now);
}

}  // namespace hvd::launcher
