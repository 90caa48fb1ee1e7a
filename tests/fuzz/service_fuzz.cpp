// Any requests of an authenticated client: every request gets a reply or waits, and a waiting
// request can be withdrawn.
#include <vector>

#include "fuzz/target.h"
#include "rendezvous/server/service.h"

// One request a line: method, target, body, separated by spaces.
HVD_FUZZ_TARGET(service) {
  using namespace hvd::rendezvous;
  StoreService service(3);
  std::vector<Pending> waiting;
  size_t replies = 0, requests = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    StoreRequest request;
    request.method = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), request.method.size() + 1));
    request.target = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), request.target.size() + 1));
    request.body = hvd::to_bytes(line);
    ++requests;
    auto outcome = service.start(std::move(request), [&](const Reply& reply) {
      HVD_CHECK(reply.status >= 200 && reply.status < 600);
      ++replies;
    });
    if (const auto* reply = std::get_if<Reply>(&outcome)) {
      HVD_CHECK(reply->status == 200 || !reply->text.empty());
      ++replies;
    } else {
      waiting.push_back(std::move(std::get<Pending>(outcome)));
    }
  }
  HVD_CHECK(replies <= requests && requests - replies <= waiting.size());
  for (const Pending& pending : waiting) {
    HVD_CHECK(pending.expired().status == 504);
    pending.withdraw();
  }
  HVD_CHECK(service.waiter_count() == 0);
}
