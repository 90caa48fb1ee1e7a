#include "launcher/rank_commands.h"

#include <algorithm>

#include "base/text.h"
#include "launcher/line_tagger.h"
#include "launcher/rank_set.h"
#include "launcher/report.h"

namespace hvd::launcher {
namespace {

std::string tagged(int rank, const char* stream, const std::string& text) {
  LineTagger tagger(cat("[", rank, "]<", stream, ">:"));
  std::string lines;
  tagger.feed(text, lines);
  tagger.finish(lines);
  return lines;
}

}  // namespace

std::vector<int> RankCommands::ranks_of(const Run& wish, Status* status) const {
  std::vector<int> ranks;
  if (wish.ranks.empty()) {
    for (const Slot& slot : plan_.slots) {
      if (slot.local_rank == 0) ranks.push_back(slot.rank);
    }
    return ranks;
  }
  const auto wanted = parse_ranks(wish.ranks, plan_.size());
  if (!wanted.ok()) {
    *status = wanted.status().with_context("--rank");
    return ranks;
  }
  for (int rank = 0; rank < plan_.size(); ++rank) {
    if ((*wanted)[static_cast<size_t>(rank)]) ranks.push_back(rank);
  }
  return ranks;
}

net::Task<Ran> RankCommands::run(Run wish) {
  Ran all;
  Status status;
  const std::vector<int> ranks = ranks_of(wish, &status);
  if (!status.ok()) {
    all.code = kExitBadInput;
    all.errors = status.message() + "\n";
    co_return all;
  }
  net::asio::steady_timer done(executor_, net::asio::steady_timer::time_point::max());
  Pending pending;
  pending.done = &done;
  pending_.push_back(&pending);
  for (const int rank : ranks) {
    wish.rank = rank;
    wish.number = ++last_;
    rank_of_order_[wish.number] = rank;
    pending.answers[wish.number].reset();
    ++pending.left;
    if (!send_(wish)) {
      on_ran({.number = wish.number, .rank = rank, .code = 1, .output = {},
              .errors = "the rank has ended\n"});
    }
  }
  if (pending.left > 0) co_await done.async_wait(net::use_tuple);
  std::erase(pending_, &pending);
  for (const auto& [number, answer] : pending.answers) {
    rank_of_order_.erase(number);
    if (!answer) continue;
    const bool is_alone = ranks.size() == 1;
    all.output += is_alone ? answer->output : tagged(answer->rank, "stdout", answer->output);
    all.errors += is_alone ? answer->errors : tagged(answer->rank, "stderr", answer->errors);
    if (all.code == 0) all.code = answer->signal != 0 ? kExitSignal + answer->signal : answer->code;
  }
  co_return all;
}

void RankCommands::on_ran(const Ran& ran) {
  for (Pending* pending : pending_) {
    const auto found = pending->answers.find(ran.number);
    if (found == pending->answers.end() || found->second) continue;
    found->second = ran;
    if (--pending->left == 0) pending->done->cancel();
  }
}

void RankCommands::on_host_gone(int host) {
  const std::map<uint32_t, int> orders = rank_of_order_;
  for (const auto& [number, rank] : orders) {
    if (plan_.slots[static_cast<size_t>(rank)].host != host) continue;
    on_ran({.number = number, .rank = rank, .code = 1, .output = {},
            .errors = "its host's part of the job has ended\n"});
  }
}

}  // namespace hvd::launcher
