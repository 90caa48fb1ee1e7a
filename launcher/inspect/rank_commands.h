// The launcher's side of `horovodrun exec`: runs one command beside some of the ranks, on their hosts,
// and forwards the output as it arrives. Ends the commands when the caller has gone. JobInspector owns
// it. Lives on the launch's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launcher/plan/slot_plan.h"
#include "launcher/protocol/protocol.h"
#include "net/asio.h"

namespace hvd::launcher {

class RankCommands {
 public:
  // `send` hands a Run, SaidTaken or StopRun to the host of a rank; false when that host's part of the
  // job is over.
  using Send = std::function<bool(int rank, const Message& order)>;
  RankCommands(net::asio::any_io_executor executor, const SlotPlan& plan, Send send)
      : executor_(std::move(executor)), plan_(plan), send_(std::move(send)) {}

  // In an elastic job: the processes by which the plan knows the ranks of now, by rank; none: no rank has begun.
  using Members = std::function<std::vector<int>()>;
  void set_members(Members members) { members_ = std::move(members); }

  // Until it has ended beside all, or the caller's socket is closed, which ends it. The caller gets
  // what is said, in records (see inspection.h), each line behind its rank where there are several;
  // then Ran with the first code that is not 0.
  net::Task<void> run(Run wish, net::StreamSocket& caller);
  void on_said(const Said& said);
  void on_ran(const Ran& ran);
  // The host is lost, or all its ranks have ended: its commands get no further answer.
  void on_host_gone(int host);

 private:
  struct Beside;
  struct Pending;

  struct Place {
    int rank = 0;     // that the user knows
    int process = 0;  // by which the plan and the agents know it
  };

  std::vector<Place> places() const;
  std::vector<Place> places_of(const Run& wish, Status* status) const;
  void order(Run wish, const std::vector<Place>& places, Pending& pending);
  net::Task<bool> tell(net::StreamSocket& caller, Pending& pending, const Said& said);
  Beside* find(uint32_t number, Pending** of);

  net::asio::any_io_executor executor_;
  const SlotPlan& plan_;
  const Send send_;
  Members members_;
  std::vector<Pending*> pending_;
  uint32_t last_ = 0;
};

}  // namespace hvd::launcher
