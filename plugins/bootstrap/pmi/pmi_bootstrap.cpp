// Takes the identity of a rank that MPICH's hydra or srun --mpi=pmi2 started, without a library: both use PMI-1 on the
// descriptor PMI_FD.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <string_view>

#include "base/clock.h"
#include "base/machine_identity.h"
#include "base/secrets/secret.h"
#include "base/settings.h"
#include "base/shared_library.h"
#include "base/text.h"
#include "bootstrap/bootstrap_plugin.h"
#include "bootstrap/pmi/pmi_wire.h"

namespace hvd::bootstrap {

namespace {

constexpr int kAnswerMs = 1000;

// The goodbye message to a PMI server. If a connection ends without this message, hydra assumes a crash and kills
// the other ranks.
struct Goodbye {
  int fd = -1;
  ino_t socket = 0;
  pid_t process = 0;  // only this process sends, not its forked children

  Goodbye() = default;
  Goodbye(const Goodbye&) = delete;
  Goodbye& operator=(const Goodbye&) = delete;
  ~Goodbye() {
    struct stat info {};
    if (process != ::getpid() || ::fstat(fd, &info) != 0 || info.st_ino != socket) return;
    constexpr std::string_view kWord = "cmd=finalize\n";
    if (::send(fd, kWord.data(), kWord.size(), MSG_NOSIGNAL) < 0) return;
    char answer[64];
    pollfd readable{fd, POLLIN, 0};
    if (::poll(&readable, 1, kAnswerMs) > 0) (void)!::read(fd, answer, sizeof answer);
  }
};

// Sends "cmd=finalize" on the server's descriptor when this process exits normally, unless MPI has sent
// it and closed the descriptor.
void send_goodbye_at_exit(int fd) {
  static Goodbye goodbye;
  struct stat info {};
  if (::fstat(fd, &info) != 0) return;
  goodbye.fd = fd;
  goodbye.socket = info.st_ino;
  goodbye.process = ::getpid();
}

// Time limit for all replies except a barrier's. Servers send these replies at once.
constexpr double kAnswerSeconds = 60;
constexpr size_t kLongestLine = 64 * 1024;

Result<int64_t> number_of(const char* variable) {
  const auto text = environment_variable(variable);
  if (!text) return failed_precondition(cat(variable, " is not set"));
  const auto number = parse_int(*text);
  if (!number || *number < 0 || *number > INT32_MAX) {
    return invalid_argument(cat(variable, " is '", printable(*text), "', which is no number"));
  }
  return *number;
}

// Checks that the descriptor is the server's socket. A rank closes this socket for its child programs,
// and many wrapper scripts close all descriptors: another file may have the socket's number.
Status check_inherited(int fd, int64_t rank) {
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode)) return {};
  return invalid_argument(
      cat("descriptor ", fd, " (PMI_FD), by which rank ", rank,
          " asks its launcher, is not open in this process: a parent of this process is that rank, "
          "or has closed the descriptor; call hvd.init() in the process that the launcher has "
          "started, below `if __name__ == \"__main__\":`, or pass the descriptor on "
          "(subprocess.Popen: close_fds=False)"));
}

class Pmi final : public Source {
 public:
  Pmi(int fd, int32_t rank, int32_t size, const hvd_plugin_host& host)
      : fd_(fd), rank_(rank), size_(size), host_(host) {}

  // Slurm's server accepts one init per process. The descriptor's close-on-exec flag records that
  // init was sent, and closes the descriptor for child programs, which must not send there.
  Status begin() {
    const int flags = ::fcntl(fd_, F_GETFD);
    if (flags < 0) return system_error(cat("PMI_FD is ", fd_), errno);
    if ((flags & FD_CLOEXEC) == 0) {
      HVD_RETURN_IF_ERROR(ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init"));
      if (::fcntl(fd_, F_SETFD, flags | FD_CLOEXEC) != 0) return system_error("fcntl", errno);
      send_goodbye_at_exit(fd_);
    }
    HVD_ASSIGN_OR_RETURN(const PmiFields limits, ask_for("cmd=get_maxes", "maxes"));
    if (const auto most = limits.find("vallen_max"); most != limits.end()) {
      longest_value_ =
          static_cast<size_t>(std::clamp<int64_t>(parse_int(most->second).value_or(0), 64, 65536));
    }
    HVD_ASSIGN_OR_RETURN(const PmiFields space, ask_for("cmd=get_my_kvsname", "my_kvsname"));
    const auto name = space.find("kvsname");
    if (name == space.end()) return internal_error("the PMI server names no key-value space");
    space_ = name->second;
    return {};
  }

  Status identity(hvd_identity* identity) override {
    identity->rank = rank_;
    identity->size = size_;
    const auto local_rank = number_of("MPI_LOCALRANKID");
    const auto local_size = number_of("MPI_LOCALNRANKS");
    if (local_rank.ok() && local_size.ok()) {
      identity->local_rank = static_cast<int32_t>(*local_rank);
      identity->local_size = static_cast<int32_t>(*local_size);
    }
    return {};
  }

  // Sends the value as hexadecimal digits, since a PMI value is one word, and in several parts, since its length is
  // limited.
  Status put(std::string_view key, ByteView value) override {
    const std::string text = to_hex(value);
    const size_t part = longest_value_ - 1;
    const size_t parts = (text.size() + part - 1) / part;
    HVD_RETURN_IF_ERROR(put_text(cat(key, ".parts"), cat(parts)));
    for (size_t i = 0; i < parts; ++i) {
      HVD_RETURN_IF_ERROR(put_text(cat(key, ".", i), text.substr(i * part, part)));
    }
    return {};
  }

  Result<Bytes> get(std::string_view key, double) override {
    HVD_ASSIGN_OR_RETURN(const std::string count, get_text(cat(key, ".parts")));
    const auto parts = parse_int(count);
    if (!parts || *parts < 0 || *parts > 1024) {
      return internal_error(cat("the PMI server gives '", printable(count), "' for ", key));
    }
    std::string text;
    for (int64_t i = 0; i < *parts; ++i) {
      HVD_ASSIGN_OR_RETURN(const std::string part, get_text(cat(key, ".", i)));
      text += part;
    }
    return from_hex(text);
  }

  // Each waiting rank reports its wait, since a PMI-1 server does not name missing ranks.
  Status fence(double timeout_seconds) override {
    const Deadline deadline = Deadline::after_seconds(timeout_seconds);
    const double quiet = quiet_seconds(timeout_seconds);
    HVD_RETURN_IF_ERROR(write("cmd=barrier_in\n"));
    HVD_ASSIGN_OR_RETURN(const bool is_answered, is_readable(Deadline::after_seconds(quiet)));
    if (!is_answered) {
      warn(host_,
           cat("rank ", rank_, " on host ", own_host_name(), " has waited in hvd.init() for ",
               std::lround(quiet), " s, and not all ", size_, " ranks have called it: ",
               "those without this line are missing, which PMI-1 does not name"));
    }
    const Status ended = read_answer("barrier_out", deadline).status();
    if (ended.code() != Code::kDeadlineExceeded) return ended;
    return deadline_exceeded(cat(ended.message(), "; PMI-1 does not name them"));
  }

 private:
  Status put_text(std::string_view key, std::string_view value) {
    return ask(cat("cmd=put kvsname=", space_, " key=", key, " value=", value), "put_result");
  }
  Result<std::string> get_text(std::string_view key) {
    HVD_ASSIGN_OR_RETURN(const PmiFields answer,
                         ask_for(cat("cmd=get kvsname=", space_, " key=", key), "get_result"));
    const auto value = answer.find("value");
    if (value == answer.end()) return not_found(cat("the PMI server has no ", key));
    return value->second;
  }
  Status ask(std::string_view line, std::string_view answer, double seconds = kAnswerSeconds) {
    return ask_for(line, answer, seconds).status();
  }

  Result<PmiFields> ask_for(std::string_view line, std::string_view answer,
                            double seconds = kAnswerSeconds) {
    HVD_RETURN_IF_ERROR(write(cat(line, "\n")));
    return read_answer(answer, Deadline::after_seconds(seconds));
  }

  Result<PmiFields> read_answer(std::string_view answer, Deadline deadline) {
    HVD_ASSIGN_OR_RETURN(const std::string text, read_line(deadline));
    HVD_ASSIGN_OR_RETURN(PmiFields fields, parse_pmi(text));
    HVD_RETURN_IF_ERROR(check_pmi(fields, answer));
    return fields;
  }

  Status write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t size = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return system_error(cat("the PMI server on descriptor ", fd_), errno);
      text.remove_prefix(static_cast<size_t>(size));
    }
    return {};
  }

  Result<bool> is_readable(Deadline deadline) const {
    for (;;) {
      pollfd readable{fd_, POLLIN, 0};
      const int ready = ::poll(&readable, 1, deadline.poll_timeout());
      if (ready >= 0) return ready > 0;
      if (errno != EINTR) return system_error("poll", errno);
    }
  }

  // Reads one line. The server sends nothing after this line until the next request.
  Result<std::string> read_line(Deadline deadline) {
    std::string line;
    char byte = 0;
    while (line.size() < kLongestLine) {
      HVD_ASSIGN_OR_RETURN(const bool is_answered, is_readable(deadline));
      if (!is_answered) {
        return deadline_exceeded("the PMI server does not answer; other ranks may be missing");
      }
      const ssize_t size = ::read(fd_, &byte, 1);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return system_error(cat("the PMI server on descriptor ", fd_), errno);
      if (size == 0) return unavailable("the PMI server has ended the connection");
      if (byte == '\n') return line;
      line.push_back(byte);
    }
    return internal_error("the PMI server's line has no end");
  }

  const int fd_;
  const int32_t rank_;
  const int32_t size_;
  const hvd_plugin_host host_;
  size_t longest_value_ = 1024;
  std::string space_;
};

struct Plugin {
  static constexpr const char* kName = "pmi";
  static constexpr int32_t kPriority = 20;
  static Status probe() { return {}; }
  static Result<std::unique_ptr<Source>> open(const hvd_plugin_host& host,
                                              const hvd_plugin_config&) {
    // Slurm's mpi/pmi2 accepts only one init per process.
    if (environment_variable("SLURM_MPI_TYPE").value_or("") == "pmi2" && mpi_is_initialised()) {
      return failed_precondition("MPI has begun with the PMI server of srun --mpi=pmi2 already");
    }
    HVD_ASSIGN_OR_RETURN(const int64_t fd, number_of("PMI_FD"));
    HVD_ASSIGN_OR_RETURN(const int64_t rank, number_of("PMI_RANK"));
    HVD_ASSIGN_OR_RETURN(const int64_t size, number_of("PMI_SIZE"));
    if (size < 1 || rank >= size) {
      return invalid_argument(cat("PMI_RANK is ", rank, " but PMI_SIZE is ", size));
    }
    HVD_RETURN_IF_ERROR(check_inherited(static_cast<int>(fd), rank));
    auto pmi = std::make_unique<Pmi>(static_cast<int>(fd), static_cast<int32_t>(rank),
                                     static_cast<int32_t>(size), host);
    HVD_RETURN_IF_ERROR(pmi->begin());
    return std::unique_ptr<Source>(std::move(pmi));
  }
};

}  // namespace

}  // namespace hvd::bootstrap

HVD_PLUGIN_ENTRY(hvd::bootstrap::BootstrapRecord<hvd::bootstrap::Plugin>)
