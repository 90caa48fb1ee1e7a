#include "runtime/telemetry/timeline.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include "base/log/log.h"
#include "base/result.h"
#include "base/text.h"
#include "base/wire/value_bytes.h"

namespace hvd::runtime {
namespace {

// The maximum time for which an event stays on its rank.
constexpr std::chrono::milliseconds kFlush{100};
// Number of pings to the root at the start; afterwards, the interval of pings, sent with events.
constexpr int kExchanges = 8;
constexpr std::chrono::seconds kPingEvery{1};
// Delay of a pong, so that pings that arrive close together get one pong.
constexpr std::chrono::milliseconds kPongAfter{1};

Status status_of(const TimelineMessage& message) {
  return message.text.empty() ? Status() : unavailable(message.text);
}

int64_t nanoseconds(Clock::time_point time) { return time.time_since_epoch().count(); }

}  // namespace

void encode(const TimelineMessage& message, ByteWriter& out) {
  out.put(message.kind).put(message.run).put(message.ticket);
  out.put(static_cast<uint8_t>(message.mark_cycles)).put(message.time).put(message.offset);
  out.put(message.error).put(message.dropped);
  out.put_text(std::string_view(message.text).substr(0, kLongestTimelineText));
  put(out, message.asks);
  put(out, message.pongs);
  out.put(static_cast<uint32_t>(message.slots.size()));
  out.put_raw(std::as_bytes(std::span(message.slots)));
}

Status decode(ByteView bytes, TimelineMessage* message) {
  ByteReader in(bytes);
  message->kind = in.get<TimelineMessageKind>();
  message->run = in.get<uint32_t>();
  message->ticket = in.get<uint32_t>();
  message->mark_cycles = in.get<uint8_t>() != 0;
  message->time = in.get<int64_t>();
  message->offset = in.get<int64_t>();
  message->error = in.get<int64_t>();
  message->dropped = in.get<uint64_t>();
  message->text = in.get_text();
  get(in, message->asks);
  get(in, message->pongs);
  message->slots.assign(in.get_count(sizeof(TraceSlot)), {});
  const ByteView slots = in.get_raw(message->slots.size() * sizeof(TraceSlot));
  HVD_RETURN_IF_ERROR(in.finish("a message of the timeline"));
  if (!slots.empty())
    std::memcpy(static_cast<void*>(message->slots.data()), slots.data(), slots.size());
  if (message->kind < TimelineMessageKind::kStart || message->kind > TimelineMessageKind::kPong) {
    return invalid_argument("a message of the timeline is of no kind");
  }
  if (message->text.size() > kLongestTimelineText) {
    return invalid_argument("a message of the timeline has too long a text");
  }
  return {};
}

std::string timeline_path(const std::string& path, int32_t generation) {
  if (path.empty() || path == kStartedByProgram || generation == 0) return path;
  std::filesystem::path file(path);
  file.replace_filename(
      cat(file.stem().string(), ".generation-", generation, file.extension().string()));
  return file.string();
}

Timeline::Timeline(const TimelineOptions& options, TraceRecorder* recorder, ServiceLinks links)
    : options_(options),
      recorder_(recorder),
      links_(std::move(links)),
      clock_(options.on_roots_machine) {
  if (is_root()) clock_.add(0, 0, 0, 0);
}

void Timeline::start(const std::string& path, bool mark_cycles,
                     std::shared_ptr<Question> question) {
  TimelineMessage message;
  message.kind = TimelineMessageKind::kStart;
  message.text = path;
  message.mark_cycles = mark_cycles;
  ask(std::move(message), std::move(question));
}

void Timeline::stop(std::shared_ptr<Question> question) {
  TimelineMessage message;
  message.kind = TimelineMessageKind::kStop;
  ask(std::move(message), std::move(question));
}

void Timeline::ask(TimelineMessage message, std::shared_ptr<Question> question) {
  message.ticket = next_ticket_++;
  questions_.emplace(message.ticket, std::move(question));
  send_up(message);
}

void Timeline::answer(const std::vector<Ask>& asks, const Status& status) {
  for (const Ask& ask : asks) {
    if (ask.rank != options_.rank) continue;
    const auto found = questions_.find(ask.ticket);
    if (found == questions_.end()) continue;
    found->second->answer(status);
    questions_.erase(found);
  }
}

void Timeline::send_up(const TimelineMessage& message) {
  ByteWriter out;
  encode(message, out);
  links_.to_root(out.view());
}

void Timeline::send_down(const TimelineMessage& message) {
  ByteWriter out;
  encode(message, out);
  links_.to_all(out.view());
}

void Timeline::receive(int32_t from, ByteView bytes) {
  TimelineMessage message;
  if (Status status = decode(bytes, &message); !status.ok()) {
    log::warning(status.with_context(cat("from rank ", from)).message());
    return;
  }
  const bool down = message.kind >= TimelineMessageKind::kStarted;
  if (down ? from != 0 : !is_root()) return;
  switch (message.kind) {
    case TimelineMessageKind::kStart:
      root_start(from, message);
      break;
    case TimelineMessageKind::kStop:
      root_stop(from, message);
      break;
    case TimelineMessageKind::kPing:
      root_.hosts[from] = message.text;
      root_.pongs.push_back({from, message.time, nanoseconds(Clock::now())});
      if (root_.pongs.size() + 1 == static_cast<size_t>(options_.size))
        root_pong();
      else
        root_.pong_at = std::min(root_.pong_at, Clock::now() + kPongAfter);
      break;
    case TimelineMessageKind::kEvents:
      root_events(from, std::move(message));
      break;
    case TimelineMessageKind::kFlushed:
      root_flushed(message.run);
      break;
    case TimelineMessageKind::kStarted:
      started(message);
      break;
    case TimelineMessageKind::kStopping:
      stopping(message);
      break;
    case TimelineMessageKind::kStopped:
      answer(message.asks, status_of(message));
      break;
    case TimelineMessageKind::kPong:
      pong(message);
      break;
  }
}

void Timeline::root_start(int32_t from, const TimelineMessage& message) {
  TimelineMessage reply;
  reply.kind = TimelineMessageKind::kStarted;
  reply.asks = {{from, message.ticket}};
  reply.mark_cycles = message.mark_cycles;
  if (root_.writer != nullptr && !root_.stopping && root_.path == message.text) {
    reply.kind = TimelineMessageKind::kStopped;  // answers at once: in scripts every rank may ask
    reply.run = run_;
  } else if (root_.writer != nullptr) {
    reply.text = cat("the timeline ", root_.path, " is being written; stop it before another one");
  } else {
    const auto written = [this, post = links_.post] { post([this] { root_written(); }); };
    auto writer =
        TraceWriter::create(message.text, options_.size, nanoseconds(Clock::now()), written);
    if (writer.ok()) {
      root_ = {};
      root_.writer = *std::move(writer);
      root_.path = message.text;
      reply.run = run_ + 1;
    } else {
      reply.text = writer.error().message();
    }
  }
  send_down(reply);
}

void Timeline::root_stop(int32_t from, const TimelineMessage& message) {
  TimelineMessage reply;
  reply.run = run_;
  if (root_.writer == nullptr) {
    reply.kind = TimelineMessageKind::kStopped;
    reply.asks = {{from, message.ticket}};
    send_down(reply);
    return;
  }
  root_.stoppers.push_back({from, message.ticket});
  if (std::exchange(root_.stopping, true)) return;
  reply.kind = TimelineMessageKind::kStopping;
  send_down(reply);
}

void Timeline::root_events(int32_t from, TimelineMessage&& message) {
  if (root_.writer == nullptr || message.run != run_) return;
  root_.writer->add({from, message.offset, message.error, message.dropped, root_.hosts[from],
                     std::move(message.slots)});
}

void Timeline::root_flushed(uint32_t run) {
  if (root_.writer == nullptr || run != run_ || ++root_.flushed != options_.size) return;
  root_.writer->finish();
}

void Timeline::root_written() {
  if (root_.writer == nullptr) return;
  TimelineMessage reply;
  reply.kind = TimelineMessageKind::kStopped;
  reply.run = run_;
  reply.asks = std::move(root_.stoppers);
  reply.text = root_.writer->status().message();
  root_.writer.reset();
  send_down(reply);
}

void Timeline::root_pong() {
  TimelineMessage reply;
  reply.kind = TimelineMessageKind::kPong;
  reply.pongs = std::move(root_.pongs);
  root_.pongs.clear();
  root_.pong_at = Clock::time_point::max();
  reply.time = nanoseconds(Clock::now());
  send_down(reply);
}

void Timeline::started(const TimelineMessage& message) {
  if (message.text.empty()) {
    run_ = message.run;
    recorder_->start(message.mark_cycles);
    exchanges_ = 0;
    if (is_root())
      root_.hosts[0] = options_.host;
    else
      ping();
  }
  answer(message.asks, status_of(message));
}

void Timeline::stopping(const TimelineMessage& message) {
  if (message.run != run_ || !recorder_->is_on()) return;
  recorder_->stop();
  flush();
  taken_ = {};
  TimelineMessage reply;
  reply.kind = TimelineMessageKind::kFlushed;
  reply.run = run_;
  send_up(reply);
}

void Timeline::flush() {
  TimelineMessage message;
  message.kind = TimelineMessageKind::kEvents;
  message.run = run_;
  message.offset = clock_.offset();
  message.error = clock_.known() ? clock_.error(nanoseconds(Clock::now())) : 0;
  message.dropped = recorder_->dropped();
  recorder_->take(&taken_);
  message.slots = taken_;
  if (is_root())
    root_events(0, std::move(message));
  else
    send_up(message);
}

void Timeline::ping() {
  TimelineMessage message;
  message.kind = TimelineMessageKind::kPing;
  message.text = options_.host;
  message.time = nanoseconds(Clock::now());
  next_ping_ = Clock::now() + kPingEvery;
  send_up(message);
}

void Timeline::pong(const TimelineMessage& message) {
  const int64_t now = nanoseconds(Clock::now());
  for (const TimelineMessage::Pong& pong : message.pongs) {
    if (pong.rank != options_.rank) continue;
    clock_.add(pong.sent, pong.there, message.time, now);
    if (++exchanges_ < kExchanges) ping();
  }
}

Clock::time_point Timeline::alarm() const {
  Clock::time_point at = root_.pong_at;
  if (!recorder_->is_on() || recorder_->empty()) return at;
  return recorder_->is_filling() ? recorder_->since() : std::min(at, recorder_->since() + kFlush);
}

void Timeline::on_alarm(Clock::time_point now) {
  if (root_.pong_at <= now) root_pong();
  if (!recorder_->is_on() || recorder_->empty()) return;
  if (!recorder_->is_filling() && recorder_->since() + kFlush > now) return;
  flush();
  if (!is_root() && now >= next_ping_) ping();
}

// On the root, writes its events and the events received from other ranks. The links are closed.
void Timeline::on_end(const Status& why) {
  if (root_.writer != nullptr) {
    if (recorder_->is_on()) flush();
    root_.writer->finish();
  }
  recorder_->stop();
  root_.pong_at = Clock::time_point::max();
  for (auto& [ticket, question] : questions_) question->answer(why);
  questions_.clear();
}

}  // namespace hvd::runtime
