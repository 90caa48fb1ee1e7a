// The launcher's side of `horovodrun exec`: one command beside some of the ranks, on their hosts, and
// what all of them said. Lives on the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/protocol.h"
#include "launcher/slot_plan.h"
#include "net/asio.h"

namespace hvd::launcher {

class RankCommands {
 public:
  // `send` hands an order to its rank's host; false when that host's part of the job is over.
  using Send = std::function<bool(const Run& order)>;
  RankCommands(net::asio::any_io_executor executor, const SlotPlan& plan, Send send)
      : executor_(std::move(executor)), plan_(plan), send_(std::move(send)) {}

  // Until it has ended beside all: the first code that is not 0, and the lines of each behind its
  // rank where there are several.
  net::Task<Ran> run(Run wish);
  void on_ran(const Ran& ran);
  // Nobody there answers any more.
  void on_host_gone(int host);

 private:
  struct Pending {
    std::map<uint32_t, std::optional<Ran>> answers;  // by the order's number, which ascend by rank
    size_t left = 0;
    net::asio::steady_timer* done = nullptr;
  };

  std::vector<int> ranks_of(const Run& wish, Status* status) const;

  net::asio::any_io_executor executor_;
  const SlotPlan& plan_;
  const Send send_;
  std::vector<Pending*> pending_;
  std::map<uint32_t, int> rank_of_order_;
  uint32_t last_ = 0;
};

}  // namespace hvd::launcher
