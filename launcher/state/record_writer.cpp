#include "launcher/state/record_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <optional>

#include "base/clock.h"
#include "base/settings.h"
#include "base/text.h"
#include "launcher/output/metrics_port.h"
#include "launcher/output/report.h"
#include "launcher/state/log_files.h"
#include "launcher/state/log_reader.h"
#include "launcher/state/state_folder.h"

namespace hvd::launcher {
namespace {

constexpr std::chrono::seconds kSign{60};
constexpr std::chrono::seconds kWaitAtEnd{1};
constexpr size_t kMostPacket = 64 << 10;
// Bytes of the command line: a packet has room for them, also escaped.
constexpr size_t kMostCommand = 8 << 10;

int64_t now() { return std::time(nullptr); }

// The child process. Only it touches the file system.
class RecordProcess {
 public:
  RecordProcess(std::string path, JobRecord record, UniqueFd socket, UniqueFd output)
      : path_(std::move(path)),
        record_(std::move(record)),
        socket_(std::move(socket)),
        output_(std::move(output)) {}

  void run() {
    write();
    auto next_sign = Deadline::after(kSign);
    while (!record_.has_ended()) {
      std::array<pollfd, 2> watched{};
      watched[0] = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
      watched[1] = {.fd = output_.get(), .events = POLLIN, .revents = 0};
      if (::poll(watched.data(), watched.size(), next_sign.poll_timeout()) < 0) continue;
      if (watched[0].revents != 0) receive();
      // The launcher has written all output before it reports the end.
      while ((watched[1].revents != 0 || record_.has_ended()) && copy_output()) continue;
      if (watched[0].revents == 0 && !next_sign.passed()) continue;
      write();
      next_sign = Deadline::after(kSign);
    }
    socket_.reset();  // the launcher goes on
    remove_old_jobs(path_, now());
  }

 private:
  void receive() {
    std::string text(kMostPacket, '\0');
    const ssize_t size = ::recv(socket_.get(), text.data(), text.size(), 0);
    if (size < 0 && errno == EINTR) return;
    auto record = parse_job_record(std::string_view(text).substr(0, size > 0 ? size : 0));
    if (record.ok()) {
      record_ = *std::move(record);
    } else if (size <= 0) {
      record_.state = "ended";
      record_.ended = now();
      record_.exit_code = kExitSignal + SIGKILL;
      record_.cause = "the launcher was killed";
    }
  }

  // False when there is none now.
  bool copy_output() {
    std::array<char, 64 << 10> piece;
    const ssize_t size =
        output_ ? ::recv(output_.get(), piece.data(), piece.size(), MSG_DONTWAIT) : -1;
    if (size < 0 && output_ && errno == EINTR) return true;
    if (size <= 0) {
      if (size == 0) output_.reset();
      return false;
    }
    bytes_.append(piece.data(), static_cast<size_t>(size));
    std::string_view rest = bytes_;
    for (;;) {
      const auto lines = take_lines(rest);
      if (!lines.ok()) rest = {};
      if (!lines.ok() || !*lines) break;
      if (folder_) files_.write(**lines);
    }
    bytes_.erase(0, bytes_.size() - rest.size());
    return true;
  }

  void write() {
    if (!folder_ && !is_refused_) {
      auto folder = make_job_folder(path_, record_.launcher);
      if (!folder.ok()) refuse_once(folder.status());
      if (folder.ok()) folder_ = *std::move(folder);
    }
    if (!folder_) return;
    record_.written = now();
    if (!record_.metrics.empty()) show_target();
    if (record_.has_ended()) files_.finish();
    Status status = write_record(folder_, record_);
    if (!status.ok() && record_.has_ended()) {
      files_.clear();  // the end is worth more than the output
      status = write_record(folder_, record_);
    }
    if (!status.ok()) refuse_once(status);
  }

  void show_target() {
    if (record_.has_ended())
      remove_target(path_, record_.launcher);
    else if (const Status status = write_target(path_, record_); !status.ok())
      refuse_once(status);
  }

  void refuse_once(const Status& why) {
    if (std::exchange(is_refused_, true)) return;
    const std::string sentence =
        cat("horovodrun ps -a cannot show this job: ", why.message(),
            "; HOROVOD_STATE_DIR names another directory for records of jobs, or none");
    [[maybe_unused]] const ssize_t size =
        ::send(socket_.get(), sentence.data(), sentence.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  const std::string path_;
  JobRecord record_;
  UniqueFd socket_;
  UniqueFd output_;
  UniqueFd folder_;
  LogFiles files_{folder_, {}};
  std::string bytes_;  // from output_, not yet taken
  bool is_refused_ = false;
};

// No signal that is for the launcher, its terminal or its allocation ends the process before the launcher. It holds no
// descriptor whose end others wait for.
[[noreturn]] void run_process(const std::string& path, JobRecord record, UniqueFd socket,
                              UniqueFd output) {
  ::setsid();
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXFSZ, SIGPIPE})
    std::signal(number, SIG_IGN);
  ::prctl(PR_SET_NAME, "horovodrun-rec");
  for (const std::string& name :
       entries_of(UniqueFd(::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC)))) {
    const auto number = parse_int(name);
    if (number && *number != socket.get() && *number != output.get())
      ::close(static_cast<int>(*number));
  }
  if (::chdir("/") != 0) ::_exit(1);
  RecordProcess(path, std::move(record), std::move(socket), std::move(output)).run();
  ::_exit(0);
}

}  // namespace

std::unique_ptr<RecordWriter> RecordWriter::start(std::string path, JobRecord record,
                                                  bool keeps_output) {
  int pair[2];
  UniqueFd output, output_reader;
  if (keeps_output && ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0) {
    output.reset(pair[0]);
    output_reader.reset(pair[1]);
  }
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    print_message(
        system_error("horovodrun ps -a cannot show this job: socket pair", errno).message());
    return nullptr;
  }
  UniqueFd own(pair[0]), other(pair[1]);
  const pid_t child = ::fork();
  if (child < 0) {
    print_message(system_error("horovodrun ps -a cannot show this job: fork", errno).message());
    return nullptr;
  }
  if (child == 0) {
    own.reset();
    output.reset();
    run_process(path, std::move(record), std::move(other), std::move(output_reader));
  }
  return std::unique_ptr<RecordWriter>(new RecordWriter(std::move(path), std::move(record),
                                                        std::move(own), std::move(output), child));
}

// The process sees the end of the socket.
RecordWriter::~RecordWriter() {
  socket_.reset();
  ::waitpid(child_, nullptr, WNOHANG);
}

void RecordWriter::send() {
  const std::string text = to_json(record_);
  [[maybe_unused]] const ssize_t size =
      ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool RecordWriter::receive(int flags) {
  std::array<char, 4096> sentence;
  const ssize_t size = ::recv(socket_.get(), sentence.data(), sentence.size(), flags);
  if (size > 0) print_message(std::string_view(sentence.data(), static_cast<size_t>(size)));
  return size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR));
}

void RecordWriter::running(int ranks) {
  record_.state = "running";
  record_.ranks = ranks;
  ++record_.launches;
  send();
  receive(MSG_DONTWAIT);
}

void RecordWriter::set_cause(const std::string& cause) { record_.cause = cause; }

void RecordWriter::end(int exit_code) {
  record_.state = "ended";
  record_.ended = now();
  record_.exit_code = exit_code;
  if (exit_code == 0) record_.cause.clear();
  send();
  const auto deadline = Clock::now() + kWaitAtEnd;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd watched{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    const int count = left > 0 ? ::poll(&watched, 1, static_cast<int>(left)) : 0;
    if (count > 0 && !receive(MSG_DONTWAIT)) return;
    if (count != 0) continue;
    return print_message(
        cat("horovodrun ps -a cannot show the end of this job: ", printable(path_),
            " does not answer; HOROVOD_STATE_DIR names another directory for records of jobs, or "
            "none"));
  }
}

bool keeps_output(const LaunchSettings& settings) {
  return settings.job.name.has_value() || settings.job.detach ||
         settings.output.output_filename.has_value();
}

JobRecord new_record(const LaunchSettings& settings, std::span<const std::string> command) {
  JobRecord record;
  record.launcher = ProcessIdentity::own();
  record.name = settings.job.name.value_or("");
  size_t size = 0;
  for (const std::string& word : command) {
    record.command.push_back(word.substr(0, kMostCommand - size));
    size += record.command.back().size() + 1;
    if (size >= kMostCommand) break;
  }
  std::array<char, 4096> folder;
  if (::getcwd(folder.data(), folder.size()) != nullptr) record.directory = folder.data();
  record.allocation = environment_variable("SLURM_JOB_ID").value_or("");
  record.began = now();
  record.has_output = keeps_output(settings);
  return record;
}

int record_job(const LaunchSettings& settings, std::span<const std::string> command,
               const std::function<void()>& on_running,
               const std::function<int(const LaunchEvents&)>& run) {
  const std::string path =
      state_folder_path(settings.output.state_dir, environment_variable("HOME").value_or(""));
  std::unique_ptr<MetricsPort> metrics;
  std::unique_ptr<RecordWriter> writer;
  if (!settings.job.dry_run) metrics = MetricsPort::open(settings);
  if (!path.empty() && !settings.job.dry_run) {
    JobRecord record = new_record(settings, command);
    if (metrics) record.metrics = metrics->target();
    writer = RecordWriter::start(path, std::move(record), keeps_output(settings));
  }
  const LaunchEvents events{.on_running =
                                [&](int ranks) {
                                  if (writer) writer->running(ranks);
                                  if (on_running) on_running();
                                },
                            .on_end =
                                [&](const std::string& cause) {
                                  if (writer) writer->set_cause(cause);
                                },
                            .output = writer ? writer->output() : -1,
                            .metrics = metrics.get()};
  const int exit_code = run(events);
  if (writer) writer->end(exit_code);
  return exit_code;
}

}  // namespace hvd::launcher
