// The packet of a process that connects to a host's rendezvous: any bytes, with up to three
// descriptors. A process without the job's secret is never admitted.
#include <fcntl.h>

#include "base/log/log.h"
#include "collectives/mesh/local_rendezvous.h"
#include "fuzz/target.h"
#include "net/packet_socket.h"

HVD_FUZZ_TARGET(local_acceptor) {
  using namespace hvd::collectives;
  static const auto rendezvous = RendezvousSocket::open();
  static const hvd::UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  static const Credentials credentials{"job", 0, hvd::Secret::random()};
  static const std::vector<int32_t> members{1};
  static const std::vector<PeerRecord> records(2);
  hvd::log::set_level(hvd::log::Level::kOff);
  HVD_CHECK(rendezvous.ok());
  if (size == 0 || size > hvd::net::kPacketLimit) return;

  const auto socket = hvd::net::connect_for_packets(rendezvous->name);
  HVD_CHECK(socket.ok());
  const std::vector<int> files(data[0] % 4, file.get());
  const hvd::ByteView packet(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  HVD_CHECK(hvd::net::send_packet(socket->get(), packet, files, "the leader").ok());
  LocalAcceptor acceptor(rendezvous->listener.get(), credentials, 0, members);
  HVD_CHECK(!acceptor.receive(records, hvd::Deadline::after_seconds(0)).ok());
}
