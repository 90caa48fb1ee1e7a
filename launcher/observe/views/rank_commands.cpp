#include "launcher/observe/views/rank_commands.h"

#include <array>
#include <deque>
#include <memory>
#include <set>
#include <string_view>

#include "base/text.h"
#include "launcher/observe/views/inspection.h"
#include "launcher/output/line_tagger.h"
#include "launcher/output/report.h"
#include "launcher/plan/rank_set.h"
#include "net/notification.h"

namespace hvd::launcher {
namespace {

// Shared with the pending read that detects the client's end. The read may complete after all other objects are
// destroyed.
struct CallerWatch {
  explicit CallerWatch(const net::asio::any_io_executor& executor) : changed(executor) {}
  net::Notification changed;
  bool is_gone = false;
  char byte = 0;
};

std::shared_ptr<CallerWatch> watch(const net::asio::any_io_executor& executor,
                                   net::StreamSocket& caller) {
  auto watch = std::make_shared<CallerWatch>(executor);
  caller.async_read_some(net::asio::buffer(&watch->byte, 1),
                         [watch](const net::error_code&, size_t) {
                           watch->is_gone = true;  // a connected client sends no more data
                           watch->changed.notify();
                         });
  return watch;
}

}  // namespace

struct RankCommands::Beside {
  Beside(Place place, uint32_t number)
      : process(place.process),
        number(number),
        taggers{LineTagger(cat("[", place.rank, "]<stdout>:")),
                LineTagger(cat("[", place.rank, "]<stderr>:"))} {}
  int process;
  uint32_t number;
  bool is_delivered = false;
  bool has_ended = false;
  int code = 0;
  std::array<LineTagger, 2> taggers;
};

struct RankCommands::Pending {
  std::deque<Beside> besides;      // ascending by rank
  std::deque<OutputChunk> chunks;  // unsent output
  size_t left = 0;
  std::shared_ptr<CallerWatch> watch;
};

std::vector<RankCommands::Place> RankCommands::places() const {
  std::vector<Place> places;
  for (const RankRun* run : hosts_.members()) places.push_back({run->rank(), run->number()});
  if (!places.empty()) return places;
  // Before its first generation, an elastic job has no ranks: take all processes.
  for (const RankRun& run : hosts_.ranks()) places.push_back({run.number(), run.number()});
  return places;
}

std::vector<RankCommands::Place> RankCommands::places_of(const Run& wish, Status* status) const {
  std::vector<Place> all = places();
  if (wish.ranks.empty()) {
    std::set<std::string_view> hosts;
    std::erase_if(all, [&](const Place& place) {
      return !hosts.insert(hosts_.rank(place.process).host().name()).second;
    });
    return all;
  }
  const auto wanted = parse_ranks(wish.ranks, static_cast<int>(all.size()));
  if (!wanted.ok()) {
    *status = wanted.status().with_context("--rank");
    return {};
  }
  std::erase_if(all,
                [&](const Place& place) { return !(*wanted)[static_cast<size_t>(place.rank)]; });
  return all;
}

void RankCommands::order(Run wish, const std::vector<Place>& places, Pending& pending) {
  for (const Place place : places) {
    wish.rank = place.process;
    wish.number = ++last_;
    pending.besides.emplace_back(place, wish.number);
    ++pending.left;
    std::string refusal = send_(place.process, wish);
    if (!refusal.empty()) {
      on_exec_result(
          {.number = wish.number, .rank = place.process, .code = 1, .why = std::move(refusal)});
    }
  }
}

net::Task<void> RankCommands::run(Run wish, net::StreamSocket& caller) {
  Status status;
  const std::vector<Place> places = places_of(wish, &status);
  if (!status.ok()) {
    const Message refusal =
        ExecResult{.code = kExitBadInput, .why = cat("horovodrun: ", status.message(), "\n")};
    co_await send_record(caller, refusal);
    co_return;
  }
  Pending pending;
  pending.watch = watch(executor_, caller);
  const std::shared_ptr<CallerWatch> watch = pending.watch;
  pending_.push_back(&pending);
  order(std::move(wish), places, pending);
  while (!watch->is_gone && (pending.left > 0 || !pending.chunks.empty())) {
    if (pending.chunks.empty()) {
      co_await watch->changed.wait();
      continue;
    }
    const OutputChunk chunk = std::move(pending.chunks.front());
    pending.chunks.pop_front();
    if (!co_await send_chunk(caller, pending, chunk)) watch->is_gone = true;
    send_(chunk.rank, OutputCredit{chunk.number, static_cast<uint32_t>(chunk.bytes.size())});
  }
  std::erase(pending_, &pending);
  ExecResult all{.why = {}};
  for (const Beside& beside : pending.besides) {
    if (!beside.has_ended) send_(beside.process, StopRun{beside.number});
    if (all.code == 0) all.code = beside.code;
  }
  const Message end = std::move(all);
  if (!watch->is_gone) co_await send_record(caller, end);
}

// Returns false if the client has disconnected. With an empty `chunk`, sends the rest of an unfinished line.
net::Task<bool> RankCommands::send_chunk(net::StreamSocket& caller, Pending& pending,
                                         const OutputChunk& chunk) {
  if (pending.besides.size() == 1) {
    const Message as_it_is = chunk;
    co_return co_await send_record(caller, as_it_is);
  }
  Beside* beside = nullptr;
  for (Beside& each : pending.besides) {
    if (each.number == chunk.number) beside = &each;
  }
  OutputChunk tagged{chunk.number, chunk.rank, chunk.is_error, {}};
  LineTagger& tagger = beside->taggers[chunk.is_error != 0 ? 1 : 0];
  if (chunk.bytes.empty())
    tagger.finish(tagged.bytes);
  else
    tagger.feed(chunk.bytes, tagged.bytes);
  const Message lines = std::move(tagged);
  co_return std::get<OutputChunk>(lines).bytes.empty() || co_await send_record(caller, lines);
}

RankCommands::Beside* RankCommands::find(uint32_t number, Pending** of) {
  for (Pending* pending : pending_) {
    for (Beside& beside : pending->besides) {
      *of = pending;
      if (beside.number == number) return &beside;
    }
  }
  return nullptr;
}

void RankCommands::on_output_chunk(const OutputChunk& chunk) {
  Pending* pending = nullptr;
  if (find(chunk.number, &pending) == nullptr) return;
  pending->chunks.push_back(chunk);
  pending->watch->changed.notify();
}

void RankCommands::on_exec_result(const ExecResult& ran) {
  Pending* pending = nullptr;
  Beside* const beside = find(ran.number, &pending);
  if (beside == nullptr || std::exchange(beside->has_ended, true)) return;
  beside->code = ran.signal != 0 ? kExitSignal + ran.signal : ran.code;
  const auto append = [&](uint8_t is_error, const std::string& text) {
    pending->chunks.push_back({ran.number, beside->process, is_error, text});
  };
  if (!ran.why.empty()) append(1, ran.why);
  for (const uint8_t is_error : {0, 1}) append(is_error, "");
  --pending->left;
  pending->watch->changed.notify();
}

bool RankCommands::is_on(const Beside& beside, int host) const {
  return hosts_.rank(beside.process).host().number() == host;
}

void RankCommands::on_answer(int host) {
  for (Pending* pending : pending_) {
    for (Beside& beside : pending->besides) beside.is_delivered |= is_on(beside, host);
  }
}

void RankCommands::on_silence(int host, const std::string& why) {
  for (Pending* pending : pending_) {
    for (const Beside& beside : pending->besides) {
      if (!is_on(beside, host) || beside.is_delivered) continue;
      on_exec_result({.number = beside.number, .rank = beside.process, .code = 1, .why = why});
    }
  }
}

void RankCommands::on_host_gone(int host) {
  for (Pending* pending : pending_) {
    for (const Beside& beside : pending->besides) {
      if (!is_on(beside, host)) continue;
      on_exec_result({.number = beside.number,
                      .rank = beside.process,
                      .code = 1,
                      .why = "its host's part of the job has ended\n"});
    }
  }
}

}  // namespace hvd::launcher
