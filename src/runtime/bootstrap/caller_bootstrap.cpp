#include "runtime/bootstrap/caller_bootstrap.h"

#include <string_view>
#include <utility>

#include "base/secrets/secret.h"
#include "base/text.h"
#include "runtime/bootstrap/served_store.h"

namespace hvd::runtime {
namespace {

// Rank 0 shares this text if it has no store.
constexpr std::string_view kNoStore = "none";

}  // namespace

Result<Bootstrap> bootstrap_by_caller(const CallerPlace& place, const WorkerSettings& settings) {
  if (place.size < 1 || place.rank < 0 || place.rank >= place.size) {
    return invalid_argument(cat("rank ", place.rank, " of ", place.size, " is impossible"));
  }
  Bootstrap result;
  result.identity.rank = place.rank;
  result.identity.size = place.size;
  result.rank_serves_store = true;
  if (place.size == 1) return result;
  if (settings.encrypts) {
    return failed_precondition(
        "HOROVOD_ENCRYPT is set, but the secret of the keys would cross the network in clear; "
        "start "
        "the job by horovodrun, or unset HOROVOD_ENCRYPT");
  }
  std::string text;
  if (place.rank == 0) {
    const Secret secret = Secret::random();
    auto server = ServedStore::start(secret, settings);
    if (!server.ok()) {
      text = kNoStore;  // the other ranks wait for a text
      place.share(&text);
      return server.status();
    }
    text = invitation(secret, (*server)->endpoints());
    result.session = std::shared_ptr<ServedStore>(*std::move(server));
  }
  if (!place.share(&text)) {
    return unavailable(cat("rank ", place.rank, " of ", place.size,
                           place.rank == 0 ? " could not send the others the address of its store"
                                           : " did not get the address of rank 0's store"));
  }
  if (text == kNoStore) return unavailable("rank 0 could not start its store, and says why");
  HVD_ASSIGN_OR_RETURN(const Invitation master, parse_invitation(text));
  HVD_ASSIGN_OR_RETURN(result.store, reach_store(master, place.rank, 0,
                                                 Deadline::after_seconds(settings.start_seconds)));
  result.secret = master.secret;
  return result;
}

}  // namespace hvd::runtime
