#include "launcher/spawn/ssh/ssh_session.h"

#include "launcher/spawn/ssh/ssh_connection.h"
#include "launcher/spawn/ssh/ssh_stream.h"

namespace hvd::launcher {

SshSession::SshSession(std::shared_ptr<SshConnection> connection, std::string try_command)
    : connection_(std::move(connection)), try_command_(std::move(try_command)) {}
SshSession::~SshSession() = default;

bool SshSession::is_built() { return true; }

std::string SshSession::authority_of(const SshSettings& settings) {
  return find_known_host(settings).exact.authority_in;
}

net::Task<Result<std::unique_ptr<SshSession>>> SshSession::open(
    SshLogin login, std::function<void(SpawnStage)> on_stage, SshFailure& failure) {
  if (!libssh().ok()) {
    failure.beyond_libssh = libssh().status().message();
    co_return libssh().status();
  }
  const auto connection = std::make_shared<SshConnection>(co_await net::asio::this_coro::executor);
  Status status = connection->configure(login, failure);
  if (!status.ok()) co_return status;
  status = co_await connection->connect(login, on_stage, failure);
  if (!status.ok()) co_return status;
  status = connection->check_host_key(login);
  if (!status.ok()) co_return status;
  on_stage(SpawnStage::kAuthenticate);
  status = co_await connection->authenticate(login, failure);
  if (!status.ok()) co_return status;
  co_return std::unique_ptr<SshSession>(new SshSession(connection, ssh_try_command(login.target)));
}

net::Task<Result<std::unique_ptr<Duplex>>> SshSession::run(std::string command) {
  return connection_->run(std::move(command));
}

}  // namespace hvd::launcher
