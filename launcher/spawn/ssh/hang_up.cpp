#include "launcher/spawn/ssh/hang_up.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/secrets/secret.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kDuringExchange[] = {
    "kex_exchange_identification: Connection closed by ",
    "kex_exchange_identification: read: Connection reset by "};
// Messages that ssh, the ssh in a ProxyCommand and programs like nc print after an early close.
constexpr std::string_view kBesides[] = {"Connection closed by ", "Connection reset by ",
                                         "ended with exit code ", kCrowded};

template <size_t Size>
bool has_one_of(std::string_view text, const std::string_view (&parts)[Size]) {
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

}  // namespace

bool shows_hang_up(std::string_view messages) {
  const std::vector<std::string> all = split(messages, ';');
  // Any other message names another cause: a ProxyCommand's program or a jump host failed.
  return has_one_of(messages, kDuringExchange) &&
         std::ranges::all_of(all,
                             [](const std::string& each) { return has_one_of(each, kBesides); });
}

Status explain_hang_up(const Status& status) {
  if (!shows_hang_up(status.message())) return status;
  return unavailable(cat(status.message(), "; ", kCrowded));
}

net::Task<bool> Retries::wait() {
  if (waits_++ == kMost) co_return false;
  const std::chrono::duration<double, std::milli> delay = next_ * (0.5 + random_fraction());
  next_ *= 2;
  net::asio::steady_timer timer(co_await net::asio::this_coro::executor,
                                std::chrono::duration_cast<std::chrono::milliseconds>(delay));
  const auto [error] = co_await timer.async_wait(net::use_tuple);
  co_return !error;
}

}  // namespace hvd::launcher
