// How a server goes on where an earlier one was lost.
#include <algorithm>

#include "rendezvous/server/service.h"
#include "rendezvous/store/kept.h"

namespace hvd::rendezvous {

Status Service::go_on(const Records& records, Keeper* keeper) {
  std::vector<std::string> fences;
  for (const auto& [name, record] : records) {
    Status status;
    const std::string_view rest = std::string_view(name).substr(std::min<size_t>(name.size(), 1));
    switch (name.empty() ? '\0' : name.front()) {
      case static_cast<char>(kept::Kind::kFence):
        fences.push_back(name);
        break;
      case static_cast<char>(kept::Kind::kExchange):
        status = exchanges_.restore(rest, record);
        break;
      case static_cast<char>(kept::Kind::kPlaces):
        status = membership_.restore(record);
        break;
      default:
        status = state_.restore(name, record);
    }
    if (!status.ok()) return status;
  }
  keeper_ = keeper;
  state_.keep_in(keeper);
  exchanges_.keep_in(keeper);
  membership_.keep_in(keeper);
  // The one before may have been lost while it wrote what it answered to each party.
  for (const std::string& name : fences) {
    HVD_RETURN_IF_ERROR(state_.restore(name, records.find(name)->second));
    keeper->remove(name);
    keeper->seal();
  }
  return {};
}

}  // namespace hvd::rendezvous
