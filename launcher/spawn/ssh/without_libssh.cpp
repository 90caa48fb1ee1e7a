// SshSession of a build with HVD_LIBSSH=OFF: the system's ssh connects to every host.
#include "launcher/spawn/ssh/ssh_session.h"

namespace hvd::launcher {

class SshConnection {};

SshSession::~SshSession() = default;

bool SshSession::is_built() { return false; }

std::string SshSession::authority_of(const SshSettings&) { return {}; }

net::Task<Result<std::unique_ptr<SshSession>>> SshSession::open(SshLogin,
                                                                std::function<void(SpawnStage)>,
                                                                SshFailure& failure) {
  failure.beyond_libssh = "HVD_LIBSSH=OFF in this build";
  co_return unavailable("this horovodrun is built without libssh");
}

net::Task<Result<std::unique_ptr<Duplex>>> SshSession::run(std::string) {
  co_return unavailable("this horovodrun is built without libssh");
}

}  // namespace hvd::launcher
