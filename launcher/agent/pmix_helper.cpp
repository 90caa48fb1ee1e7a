#include "launcher/agent/pmix_helper.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>

#include "base/files/whole_io.h"
#include "base/text.h"
#include "launcher/agent/host/leftovers.h"
#include "launcher/agent/host/process_tree.h"
#include "launcher/agent/link/accepting.h"
#include "net/peer_user.h"
#include "net/socket_address.h"

namespace hvd::launcher {
namespace {

// The time limit for the helper's answer, while ranks wait in MPI_Init. The disk with the library may be slow.
constexpr double kAnswerSeconds = 60;
constexpr double kEndSeconds = 2;
// The number of ports besides the ranks' ports: one that a host always needs, and three for PMIx and PMI-1 (two of the
// agent, one of the helper).
constexpr int kPorts = 4;

// Returns the program as an unnamed file.
UniqueFd program_file() {
  const std::string_view program = pmix_program();
  UniqueFd file(::memfd_create("horovod-pmix", MFD_CLOEXEC));
  if (!file || program.empty()) return {};
  for (size_t done = 0; done < program.size();) {
    const ssize_t size = ::write(file.get(), program.data() + done, program.size() - done);
    if (size <= 0) return {};
    done += static_cast<size_t>(size);
  }
  return file;
}

// Returns the name with only characters that PMIx accepts in a list.
std::string safe_name(std::string name) {
  for (char& c : name) {
    const bool is_safe = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '-' || c == '.';
    if (!is_safe) c = '-';
  }
  return name;
}

uint16_t port_of(const UniqueFd& listener) {
  const auto address = net::local_address(listener.get());
  return address.ok() ? net::to_endpoint(*address).port : uint16_t{0};
}

// Returns whether the loader finds PMIx's library on this host: in a folder of LD_LIBRARY_PATH, or in its cache.
bool has_library(const Environment& environment) {
  const std::string name = "libpmix.so.2";
  for (const std::string& folder : split(value_of(environment, "LD_LIBRARY_PATH"), ':')) {
    if (!folder.empty() && ::access(cat(folder, "/", name).c_str(), R_OK) == 0) return true;
  }
  const UniqueFd file(::open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC));
  std::string cache;
  return file && read_all(file.get(), cache) && cache.find(name + '\0') != std::string::npos;
}

// Returns a socket that connects to a server of this user. The connection may not be established yet.
UniqueFd connect_to(const net::Endpoint& server) {
  const auto address = net::numeric_address(server);
  UniqueFd socket(::socket(address->family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const bool is_begun = socket && (::connect(socket.get(), address->get(), address->size) == 0 ||
                                   errno == EINPROGRESS);
  // Check the user: after the helper's end, another user could have bound its abstract name.
  return is_begun && is_of_this_user(socket.get()) ? std::move(socket) : UniqueFd();
}

}  // namespace

PmixHelper::~PmixHelper() {
  for (const Port* port : {&pmix_, &pmi_}) {
    if (port->listener) loop_.unwatch(port->listener.get());
  }
  if (process_.output[0]) loop_.unwatch(process_.output[0].get());
  forget_order();
  std::error_code ignored;
  if (lock_) std::filesystem::remove_all(folder_, ignored);
}

bool PmixHelper::open(const HostJob& job, const Environment& environment) {
  const std::string_view choice = value_of(job.environment, "HOROVOD_PMIX");
  if (choice == "0" || pmix_program().empty()) return false;
  if (choice != "1" && !has_library(environment)) return false;
  const auto ports = net::parse_port_range(value_of(job.environment, "HOROVOD_PORT_RANGE"));
  // A small range has only the ports that ranks need. Ports outside the range work too: no firewall blocks 127.0.0.1.
  if (ports.ok() && ports->size() >= static_cast<int>(job.ranks.size()) + kPorts) ports_ = *ports;
  if (!listen(pmix_).ok() || !listen(pmi_).ok()) return false;
  remove_unlocked_folders(folder_.substr(0, folder_.rfind('/') + 1), kJobFolder);
  if (::mkdir(folder_.c_str(), 0700) != 0) return false;
  lock_ = lock_folder(folder_);
  environment_ = environment;
  return true;
}

Status PmixHelper::listen(Port& port) {
  HVD_ASSIGN_OR_RETURN(port.listener, listen_on_loopback(ports_));
  port.number = port_of(port.listener);
  return {};
}

void PmixHelper::serve(const HostJob& job, const StartOrder& start, const std::string& store) {
  const std::string_view names = value_of(start.environment, "HOROVOD_PMIX_HOSTS");
  const auto ranks = parse_map(value_of(start.environment, "HOROVOD_PMIX_RANKS"));
  if (names.empty() || !ranks.ok() || job.host >= ranks->size()) {
    pmix_.listener.reset();
    pmi_.listener.reset();
  }
  if (!is_open()) return;
  order_.job = cat("horovod-", job.job, "-", job.generation);
  order_.host = job.host;
  for (const std::string& name : split(names, ',')) order_.names.push_back(safe_name(name));
  order_.ranks = *ranks;
  order_.store = store;
  order_.secret = value_of(job.environment, "HOROVOD_JOB_SECRET");
  for (const Port* port : {&pmix_, &pmi_})
    loop_.watch(port->listener.get(), EPOLLIN, [this, port](uint32_t) { accept(*port); });
}

Environment PmixHelper::environment_of(const Environment& rank, const StartOrder& order) const {
  const auto number = parse_int(value_of(rank, "HOROVOD_RANK"));
  if (!is_open() || !number) return {};
  const std::vector<int>& own = order_.ranks[order_.host];
  if (std::ranges::find(own, *number) == own.end()) return {};
  const std::string address = cat("horovod.", order_.host, ";tcp4://127.0.0.1:", pmix_.number);
  // Clients of PMIx 3 to 5 read these addresses. Servers of PMIx 3 refuse clients that have PMIX_SERVER_URI4 or 41.
  // Without PMIX_GDS_MODULE, clients of PMIx 5 fail with a server of PMIx 4.
  Environment environment = {{"PMIX_SERVER_URI3", address}, {"PMIX_SERVER_URI21", address},
                             {"PMIX_SERVER_URI2", address}, {"PMIX_NAMESPACE", order_.job},
                             {"PMIX_RANK", cat(*number)},   {"PMIX_GDS_MODULE", "hash"}};
  environment.emplace_back("PMI_PORT", cat("127.0.0.1:", pmi_.number));
  environment.emplace_back("PMI_ID", cat(*number));
  const auto suggest = [&](const char* variable, const std::string& value) {
    if (!value.empty() && value_of(rank, variable).empty()) {
      environment.emplace_back(variable, value);
    }
  };
  // Without this variable, Open MPI 4 assumes that no launcher started the program. The value names a launcher that
  // Open MPI knows, and "ompi" for an mpirun inside this job.
  suggest("OMPI_MCA_schizo", "jsm,ompi");
  // Open MPI's shared files are in the job's folder, so they are removed with it, even after SIGKILL.
  suggest("OMPI_MCA_btl_vader_backing_directory", folder_);
  // Without this variable Open MPI would try unreachable addresses.
  suggest("OMPI_MCA_btl_tcp_if_include", order.interface);
  return environment;
}

void PmixHelper::accept(const Port& port) {
  accept_all(loop_, port.listener, [this, &port](UniqueFd socket) {
    if (has_failed_ || !net::peer_user(socket.get()).is_own_or_elsewhere()) return;
    if (is_serving_) return relay(port, std::move(socket));
    waiting_.emplace_back(&port, std::move(socket));
    if (was_used_) return;
    if (const Status status = start(); !status.ok()) {
      fail(cat("cannot start: ", status.message()));
    }
  });
}

Status PmixHelper::start() {
  const UniqueFd file = program_file();
  if (!file) return unavailable("its program cannot be written to memory");
  RankCommand command;
  command.path = cat("/proc/self/fd/", file.get());
  command.arguments = {"horovod-pmix", folder_};
  command.working_directory = "/";
  command.environment = environment_;
  if (!ports_.is_any()) {
    HVD_ASSIGN_OR_RETURN(const UniqueFd probe, listen_on_loopback(ports_));
    command.environment.emplace_back("PMIX_MCA_ptl_base_ipv4_port", cat(port_of(probe)));
  }
  command.has_input = true;
  ::getrlimit(RLIMIT_NOFILE, &command.descriptor_limit);
  HVD_ASSIGN_OR_RETURN(process_, start_rank(command));
  was_used_ = true;
  answer_by_ = Deadline::after_seconds(kAnswerSeconds);
  unsent_ = pack_texts(to_texts(order_));
  loop_.watch(process_.input.get(), EPOLLOUT, [this](uint32_t) { give_order(); });
  loop_.watch(process_.output[0].get(), EPOLLIN, [this](uint32_t) { read(); });
  return {};
}

void PmixHelper::give_order() {
  const ssize_t size = ::write(process_.input.get(), unsent_.data(), unsent_.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size > 0) unsent_.erase(0, static_cast<size_t>(size));
  if (size < 0 || unsent_.empty()) forget_order();  // read() handles the end of the helper
}

// The pipe remains open and writable, so it must leave the loop, which would otherwise report it forever.
void PmixHelper::forget_order() {
  unsent_.clear();
  if (process_.input) loop_.unwatch(process_.input.get());
}

void PmixHelper::read() {
  char buffer[4096];
  const ssize_t size = ::read(process_.output[0].get(), buffer, sizeof buffer);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) {
    loop_.unwatch(process_.output[0].get());
    if (process_.input) fail(last_words());
    return;
  }
  received_.append(buffer, static_cast<size_t>(size));
  while (const auto texts = take_texts(received_)) take(*texts);
}

// The helper's first message is its port for PMIx and its socket name for PMI-1. Each later message is one of: a rank
// has connected, and how often; all ranks have met; the sentence of a failure.
void PmixHelper::take(const PmixTexts& texts) {
  if (!is_serving_) {
    const auto port = texts.size() == 2 ? parse_int(texts[0]) : std::nullopt;
    if (!port || *port < 1 || *port > 65535) return fail("has no port");
    answer_by_ = Deadline::never();
    using Family = net::Endpoint::Family;
    pmix_.server = {Family::kTcp, {}, "127.0.0.1", static_cast<uint16_t>(*port)};
    pmi_.server = {Family::kUnix, cat("@", texts[1]), {}, 0};
    is_serving_ = true;
    for (auto& [at, socket] : std::exchange(waiting_, {})) relay(*at, std::move(socket));
    return;
  }
  if (texts.size() == 1) {
    PmixReport report;
    report.failure = texts[0];
    return on_report_(report);
  }
  last_.has_met = texts.empty();
  if (texts.size() == 2) {
    last_.rank = static_cast<int32_t>(parse_int(texts[0]).value_or(-1));
    last_.start = texts[1];
  }
  on_report_(last_);
}

void PmixHelper::relay(const Port& port, UniqueFd socket) {
  UniqueFd server = connect_to(port.server);
  if (!server) return;
  const auto number = next_relay_++;
  relays_.try_emplace(number, loop_, std::move(socket), std::move(server), [this, number] {
    relays_.erase(number);
    for (const Port* each : {&pmix_, &pmi_})
      loop_.change(each->listener.get(), EPOLLIN);  // accept_all() may wait for free descriptors
  });
}

void PmixHelper::fail(const std::string& why) {
  waiting_.clear();
  relays_.clear();
  if (!std::exchange(has_failed_, true)) {
    PmixReport report;
    report.failure = cat("the PMIx server of this host ", why,
                         ", so that MPI_Init fails there; --no-pmix leaves PMIx out");
    on_report_(report);
  }
  end();
}

// Returns the part of a sentence that explains the helper's end. The PMIx library may have printed other lines.
std::string PmixHelper::last_words() const {
  std::string errors;
  read_all(process_.output[1].get(), errors);
  constexpr std::string_view kBegin = "horovod-pmix: ";
  const size_t begin = errors.rfind(kBegin);
  if (begin == std::string::npos) return "has ended";
  const std::string_view line = std::string_view(errors).substr(begin + kBegin.size());
  return cat("has failed: ", printable(line.substr(0, line.find('\n'))));
}

bool PmixHelper::is_alone() const {
  if (process_.pid < 0) return false;
  const std::vector<pid_t> left = descendants();
  return left.size() == 1 && left.front() == process_.pid;
}

void PmixHelper::on_reaped(pid_t pid) {
  if (pid != process_.pid) return;
  process_.pid = -1;
  kill_at_ = Deadline::never();
}

void PmixHelper::end() {
  answer_by_ = Deadline::never();
  if (process_.pid < 0) return;
  if (process_.input) {
    forget_order();
    process_.input.reset();
    kill_at_ = Deadline::after_seconds(kEndSeconds);
  } else if (kill_at_.passed()) {
    kill_at_ = Deadline::never();
    ::kill(process_.pid, SIGKILL);
  }
}

void PmixHelper::on_deadline() {
  if (answer_by_.passed())
    fail(cat("has not started within ", kAnswerSeconds, " s"));
  else
    end();
}

}  // namespace hvd::launcher
