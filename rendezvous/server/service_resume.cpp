// How a server resumes the job of an earlier one.
#include <algorithm>

#include "rendezvous/server/service.h"
#include "rendezvous/store/records.h"

namespace hvd::rendezvous {

Status Service::resume(const Records& records, DurableStore* durable) {
  std::vector<std::string> fences;
  for (const auto& [name, record] : records) {
    Status status;
    const std::string_view rest = std::string_view(name).substr(std::min<size_t>(name.size(), 1));
    switch (name.empty() ? '\0' : name.front()) {
      case static_cast<char>(records::Kind::kFence):
        fences.push_back(name);
        break;
      case static_cast<char>(records::Kind::kExchange):
        status = exchanges_.restore(rest, record);
        break;
      case static_cast<char>(records::Kind::kPlaces):
        status = membership_.restore(record);
        break;
      default:
        status = state_.restore(name, record);
    }
    if (!status.ok()) return status;
  }
  durable_ = durable;
  state_.write_to(durable);
  exchanges_.write_to(durable);
  membership_.write_to(durable);
  // The server before may have been lost while it wrote its answers to the parties.
  for (const std::string& name : fences) {
    HVD_RETURN_IF_ERROR(state_.restore(name, records.find(name)->second));
    durable->remove(name);
    durable->seal();
  }
  return {};
}

}  // namespace hvd::rendezvous
