#include "launcher/job/worker_notice.h"

#include <array>
#include <memory>

namespace hvd::launcher {
namespace {

namespace asio = net::asio;

constexpr std::chrono::seconds kLongest{3};
constexpr size_t kReplyHead = 36;  // a digest and a length

net::Task<bool> tell(std::pair<std::string, uint16_t> where, const Bytes& request) {
  net::error_code error;
  const auto address = asio::ip::make_address(where.first, error);
  if (error) co_return false;
  const auto executor = co_await asio::this_coro::executor;
  const auto socket = std::make_shared<asio::ip::tcp::socket>(executor);
  asio::steady_timer limit(executor);
  limit.expires_after(kLongest);
  limit.async_wait([socket](const net::error_code& ended) {
    net::error_code ignored;
    if (!ended) socket->close(ignored);
  });
  const asio::ip::tcp::endpoint endpoint(address, where.second);
  const auto [refused] = co_await socket->async_connect(endpoint, net::use_tuple);
  if (refused) co_return false;
  const auto output = asio::buffer(request);
  const auto [unsent, sent] = co_await asio::async_write(*socket, output, net::use_tuple);
  if (unsent) co_return false;
  std::array<std::byte, kReplyHead> reply{};
  const auto input = asio::buffer(reply);
  const auto [unanswered, received] = co_await asio::async_read(*socket, input, net::use_tuple);
  co_return !unanswered;
}

}  // namespace

net::Task<bool> tell_worker(WorkerAddress worker, Bytes request) {
  for (const auto& where : worker.addresses) {
    const bool is_delivered = co_await tell(where, request);
    if (is_delivered) co_return true;
  }
  co_return false;
}

}  // namespace hvd::launcher
