// Ends the job when a rank has ended and other ranks wait for it in hvd.init() or MPI_Init. Updates the waits that
// later parts read. Active only in jobs of constant size, because ranks of an elastic job join and leave.

#include <utility>

#include "launcher/observe/parts.h"

namespace hvd::launcher {
namespace {

class AwaitedRanks : public JobPart {
 public:
  explicit AwaitedRanks(PartLaunch& launch) : launch_(launch) {}

  void on(const JobEvent& event) override;

 private:
  void check();

  PartLaunch& launch_;
};

void AwaitedRanks::on(const JobEvent& event) {
  if (launch_.is_elastic()) return;
  if (const auto* joined = std::get_if<RankJoined>(&event)) {
    launch_.init_waits().joined(joined->report, Clock::now());
    return check();
  }
  if (const auto* joined = std::get_if<RankInMpi>(&event)) {
    launch_.mpi_waits().joined(joined->report, Clock::now());
    return check();
  }
  // A rank's failure may have been held back until a silent host answered.
  if (std::holds_alternative<RankExited>(event) || std::holds_alternative<HostAnswered>(event))
    check();
}

void AwaitedRanks::check() {
  if (launch_.is_holding()) return;
  for (const auto& [waits, call] :
       {std::pair(&launch_.init_waits(), "hvd.init()"),
        std::pair(&launch_.mpi_waits(), "MPI_Init; --no-pmix lets each rank use MPI alone")}) {
    if (const auto wait = waits->hopeless())
      launch_.end_wait(wait->missing[0], wait->present, call);
  }
}

}  // namespace

std::shared_ptr<JobPart> awaited_ranks(PartLaunch& launch) {
  return std::make_shared<AwaitedRanks>(launch);
}

}  // namespace hvd::launcher
