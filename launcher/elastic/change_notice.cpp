#include "launcher/elastic/change_notice.h"

#include <chrono>

#include "base/text.h"

namespace hvd::launcher {

bool ChangeNotice::set(int32_t updates, Clock::time_point now) {
  if (updates == updates_) return false;
  if (updates_ == rendezvous::kHostsUnchanged) {
    since_ = now;
    reminder_.start(now + Reminder::kInterval);
  }
  updates_ = updates;
  return true;
}

std::optional<std::string> ChangeNotice::reminder(Clock::time_point now) {
  if (!reminder_.is_due(now)) return std::nullopt;
  return cat("the next generation has waited ",
             std::chrono::round<std::chrono::seconds>(now - since_).count(),
             " s for a commit of the ranks (",
             updates_ == rendezvous::kHostsAdded     ? "new ranks are ready"
             : updates_ == rendezvous::kHostsRemoved ? "ranks are to leave"
                                                     : "new ranks are ready, others are to leave",
             ")");
}

std::string ChangeNotice::cause() const {
  const bool is_growth = (updates_ & rendezvous::kHostsAdded) != 0;
  const bool is_loss = (updates_ & rendezvous::kHostsRemoved) != 0;
  return is_growth && is_loss ? "new ranks were ready, and others left"
         : is_growth          ? "new ranks were ready"
         : is_loss            ? "ranks left"
                              : "the ranks asked for it after an error";
}

}  // namespace hvd::launcher
