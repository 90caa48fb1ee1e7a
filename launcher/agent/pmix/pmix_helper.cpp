#include "launcher/agent/pmix/pmix_helper.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "base/text.h"
#include "launcher/agent/host/leftovers.h"
#include "launcher/agent/host/process_tree.h"
#include "net/port_range.h"
#include "net/tcp_transport.h"

namespace hvd::launcher {
namespace {

// The time limit for the helper's answer. The disk with the library may be slow, and the job's
// start waits.
constexpr double kAnswerSeconds = 5;
constexpr double kServeSeconds = 10;
constexpr double kEndSeconds = 2;

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

// Returns a name in a form that PMIx can put into a list.
std::string safe_name(std::string name) {
  for (char& c : name) {
    const bool is_safe = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '-' || c == '.';
    if (!is_safe) c = '-';
  }
  return name;
}

// Returns the last free port of a range, or 0. Other searches start at the first port.
uint16_t last_free(net::PortRange range) {
  for (int port = range.last; port >= range.first; --port) {
    const auto number = static_cast<uint16_t>(port);
    if (net::TcpListener::open({number, number}).ok()) return number;
  }
  return 0;
}

// Makes PMIx listen on a port of HOROVOD_PORT_RANGE, if that is set. Returns false when no port is free.
bool keep_to_range(Environment& environment, const HostJob& job) {
  const auto range = net::parse_port_range(value_of(job.environment, "HOROVOD_PORT_RANGE"));
  if (!range.ok() || range->is_any()) return true;
  const uint16_t port = last_free(*range);
  environment.emplace_back("PMIX_MCA_ptl_base_ipv4_port", cat(port));
  return port != 0;
}

bool give(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::write(fd, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    pollfd writable{fd, POLLOUT, 0};
    if (size < 0 && errno == EAGAIN && ::poll(&writable, 1, 1000) > 0) continue;
    if (size <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

}  // namespace

void PmixHelper::begin(const HostJob& job, const Environment& environment, bool is_needed,
                       std::function<void()> on_answer) {
  on_answer_ = std::move(on_answer);
  if (value_of(job.environment, "HOROVOD_PMIX") == "0") return answer();
  is_left_out_ = !is_needed;
  if (is_left_out_ && job.hosts == 1) return answer();
  const UniqueFd file = program_file();
  if (!file) return answer();
  const size_t name = folder_.rfind('/') + 1;
  remove_unlocked_folders(folder_.substr(0, name), kJobFolder);
  RankCommand command;
  command.path = cat("/proc/self/fd/", file.get());
  command.arguments = {"horovod-pmix", folder_, safe_name(job.host_name), cat(job.host)};
  if (is_left_out_) command.arguments.emplace_back("standby");
  command.working_directory = "/";
  command.environment = environment;
  if (!keep_to_range(command.environment, job)) return answer();
  command.has_input = true;
  ::getrlimit(RLIMIT_NOFILE, &command.descriptor_limit);
  auto process = start_rank(command);
  if (!process.ok()) return answer();
  process_ = *std::move(process);
  answer_by_ = Deadline::after_seconds(kAnswerSeconds);
  loop_.watch(process_.output[0].get(), EPOLLIN, [this](uint32_t) { read(); });
}

void PmixHelper::read() {
  char buffer[256];
  const ssize_t size = ::read(process_.output[0].get(), buffer, sizeof buffer);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return answer();
  received_.append(buffer, static_cast<size_t>(size));
  const auto texts = take_texts(received_);
  if (!texts) return;
  if (texts->size() == 1) version_ = is_left_out_ ? kPmixUnneeded : texts->front();
  lock_ = lock_folder(folder_);  // ranks use it also after the helper's end
  answer();
}

void PmixHelper::answer() {
  forget();
  answer_by_ = Deadline::never();
  if (version_.empty() && process_.input) end();
  if (on_answer_) std::exchange(on_answer_, nullptr)();
}

void PmixHelper::forget() {
  if (process_.output[0]) loop_.unwatch(process_.output[0].get());
}

void PmixHelper::on_deadline() {
  if (!has_answered())
    answer();
  else
    end();
}

Result<std::map<int, Environment>> PmixHelper::serve(const HostJob& job, const StartOrder& start,
                                                     const std::string& store) {
  const std::string_view names = value_of(start.environment, "HOROVOD_PMIX_HOSTS");
  const auto ranks = parse_map(value_of(start.environment, "HOROVOD_PMIX_RANKS"));
  if (version_.empty() || names.empty() || !ranks.ok()) {
    end();
    return std::map<int, Environment>();
  }
  PmixOrder order;
  order.job = cat("horovod-", job.job, "-", job.generation);
  order.host = job.host;
  for (const std::string& name : split(names, ',')) order.names.push_back(safe_name(name));
  order.ranks = *ranks;
  order.store = store;
  order.secret = value_of(job.environment, "HOROVOD_JOB_SECRET");
  auto served = ask(order);
  if (served.ok()) {
    is_left_out_ = false;
    return served;
  }
  end();
  if (job.hosts == 1) return std::map<int, Environment>();
  return unavailable(cat("the PMIx server of this host, which other hosts' ranks need, ",
                         served.status().message(), "; --no-pmix leaves PMIx out"));
}

Result<std::map<int, Environment>> PmixHelper::ask(const PmixOrder& order) {
  const Deadline deadline = Deadline::after_seconds(kServeSeconds);
  if (!give(process_.input.get(), pack_texts(to_texts(order)))) return unavailable(last_words());
  for (;;) {
    if (const auto texts = take_texts(received_)) return parse_environments(*texts);
    char buffer[4096];
    pollfd readable{process_.output[0].get(), POLLIN, 0};
    if (::poll(&readable, 1, deadline.poll_timeout()) <= 0) {
      return deadline_exceeded(cat("has not started within ", kServeSeconds, " s"));
    }
    const ssize_t size = ::read(process_.output[0].get(), buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return unavailable(last_words());
    received_.append(buffer, static_cast<size_t>(size));
  }
}

// The end of a sentence about a helper that has ended. Its library may have written other lines.
std::string PmixHelper::last_words() const {
  std::string errors;
  char buffer[4096];
  for (;;) {
    const ssize_t size = ::read(process_.output[1].get(), buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    errors.append(buffer, static_cast<size_t>(size));
  }
  constexpr std::string_view kBegin = "horovod-pmix: ";
  const size_t begin = errors.rfind(kBegin);
  if (begin == std::string::npos) return "has ended";
  const std::string_view line = std::string_view(errors).substr(begin + kBegin.size());
  return cat("has failed: ", printable(line.substr(0, line.find('\n'))));
}

bool PmixHelper::was_used() const {
  pollfd readable{process_.output[0].get(), POLLIN, 0};
  return readable.fd >= 0 && ::poll(&readable, 1, 0) > 0 && (readable.revents & POLLIN) != 0;
}

bool PmixHelper::is_alone() const {
  if (process_.pid < 0) return false;
  const std::vector<pid_t> left = descendants();
  return left.size() == 1 && left.front() == process_.pid;
}

void PmixHelper::end() {
  if (process_.pid < 0) return;
  if (process_.input) {
    process_.input.reset();
    kill_at_ = Deadline::after_seconds(kEndSeconds);
  } else if (kill_at_.passed()) {
    kill_at_ = Deadline::never();
    ::kill(process_.pid, SIGKILL);
  }
}

Environment pmix_rank_environment(const std::map<int, Environment>& served, const Environment& rank,
                                  const StartOrder& order) {
  const auto number = parse_int(value_of(rank, "HOROVOD_RANK"));
  const auto own = number ? served.find(static_cast<int>(*number)) : served.end();
  if (own == served.end()) return {};
  Environment environment = own->second;
  const auto suggest = [&](const char* variable, const std::string& value) {
    if (!value.empty() && value_of(rank, variable).empty()) {
      environment.emplace_back(variable, value);
    }
  };
  // Without this variable Open MPI 4 assumes that no launcher started the program. The value names a
  // launcher that it knows, and "ompi" for an mpirun inside this job.
  suggest("OMPI_MCA_schizo", "jsm,ompi");
  // Open MPI's shared files lie in the job's folder and are removed with it, also after a kill.
  suggest("OMPI_MCA_btl_vader_backing_directory",
          std::string(value_of(own->second, "PMIX_SERVER_TMPDIR")));
  // Without this variable Open MPI would try unreachable addresses.
  suggest("OMPI_MCA_btl_tcp_if_include", order.interface);
  return environment;
}

}  // namespace hvd::launcher
