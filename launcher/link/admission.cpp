#include "launcher/link/admission.h"

#include <utility>

#include "base/log/log.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "launcher/protocol/record.h"
#include "net/frame.h"
#include "net/socket_address.h"

namespace hvd::launcher {

namespace {

namespace asio = net::asio;

Status status_of(const net::error_code& error) {
  if (error == boost::system::errc::bad_message)
    return unavailable("the agent's connection: bytes of it were changed on the way");
  return net::to_status("the agent's connection", error);
}

class SocketDuplex : public Duplex {
 public:
  explicit SocketDuplex(net::AcceptedSocket socket) : socket_(std::move(socket)) {}

  net::Task<Result<size_t>> read_some(std::span<std::byte> buffer) override {
    const auto [error, size] =
        co_await socket_.read_some(asio::buffer(buffer.data(), buffer.size()));
    if (error == asio::error::eof) co_return size_t{0};
    if (error) co_return status_of(error);
    co_return size;
  }

  net::Task<Status> write(ByteView bytes) override {
    const auto [error, size] = co_await socket_.write(asio::buffer(bytes.data(), bytes.size()));
    co_return status_of(error);
  }

  void close() override { socket_.close(); }

  std::string last_words() const override { return {}; }

 private:
  net::AcceptedSocket socket_;
};

std::string who_calls(int socket) {
  const std::string peer = net::peer_text(socket);
  return peer.empty() ? "an agent" : cat("the agent at ", peer);
}

}  // namespace

void RefusedCallers::report(const std::string& why) {
  constexpr int kReported = 20;
  if (++count_ > kReported) return;
  log::warning(count_ < kReported ? why
                                  : cat(why,
                                        "; later refusals are not reported; give --listen an "
                                        "address that only hosts of the job reach"));
}

net::Task<Result<Message>> read_message(Duplex& duplex) {
  net::FrameParser parser(1024);
  for (;;) {
    const auto frame = parser.next();
    if (!frame.ok()) co_return frame.status();
    if (frame->has_value()) co_return decode((*frame)->payload);
    std::array<std::byte, 256> buffer;
    const auto size = co_await duplex.read_some(buffer);
    if (!size.ok()) co_return size.status();
    if (*size == 0) co_return unavailable("it closed the connection");
    parser.feed(ByteView(buffer).first(*size));
  }
}

Result<net::TlsFront> tls_of_agents(const Secret& token, const std::string& certificate,
                                    const std::string& key) {
  net::TlsServerOptions options{.certificate = certificate, .key = key};
  options.shared_key = join_key(token);
  options.on_other_key = [refused = std::make_shared<RefusedCallers>()](const std::string& peer) {
    refused->report(
        cat("the agent at ", peer,
            " does not hold the job's token; copy this launcher's token file to its host"));
  };
  options.on_altered = [altered = std::make_shared<RefusedCallers>()](const std::string& peer) {
    altered->report(cat("the connection of the agent at ", peer,
                        " ended: bytes were altered in transit, and none of them was used"));
  };
  return net::TlsFront::make(std::move(options));
}

net::Task<Result<std::variant<AdmittedAgent, ReturnedAgent>>> admit(net::AcceptedSocket socket,
                                                                    Bytes token) {
  const std::string who = who_calls(socket.native_handle());
  auto duplex = std::make_unique<SocketDuplex>(std::move(socket));
  Challenge challenge;
  fill_random(challenge.nonce);
  const Bytes asked = framed(challenge);
  Status status = co_await duplex->write(asked);
  if (!status.ok()) co_return status.with_context(who);
  const auto message = co_await read_message(*duplex);
  const auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) {
    co_return deadline_exceeded(cat(who, " did not prove in time that it holds the job's token"));
  }
  if (!message.ok()) co_return message.status().with_context(who);
  if (const auto* offer = std::get_if<Resume>(&*message)) {
    co_return ReturnedAgent{*offer, challenge.nonce, std::move(duplex)};
  }
  const auto* answer = std::get_if<Answer>(&*message);
  if (answer == nullptr) {
    co_return permission_denied("it did not answer the challenge").with_context(who);
  }
  if (!is_same(answer->proof, prove_agent(token, challenge.nonce, answer->nonce, answer->name))) {
    co_return permission_denied(
        cat(who, ", which calls itself '", printable(answer->name),
            "', does not hold the job's token; copy this launcher's token file "
            "to its host"));
  }
  const Bytes admitted = framed(Admission{prove_launcher(token, challenge.nonce, answer->nonce)});
  status = co_await duplex->write(admitted);
  if (!status.ok()) co_return status.with_context(who);
  co_return AdmittedAgent{answer->name, answer->version, std::move(duplex)};
}

}  // namespace hvd::launcher
