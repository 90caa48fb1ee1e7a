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
#include <cmath>
#include <csignal>
#include <ctime>
#include <vector>

#include "base/proc_file.h"
#include "base/process/signals.h"
#include "base/settings.h"
#include "base/text.h"
#include "launcher/output/metrics_port.h"
#include "launcher/output/report.h"
#include "launcher/plan/redaction.h"
#include "launcher/state/log_files.h"
#include "launcher/state/state_folder.h"

namespace hvd::launcher {
namespace {

constexpr std::chrono::seconds kSign{60};
constexpr std::chrono::seconds kWaitAtEnd{1};
constexpr size_t kKeptAtEnd =
    64 << 10;  // the newest output, which explains the end, if the disk is too slow for all output
constexpr size_t kMostPacket = 64 << 10;
constexpr size_t kMostHeld = 512 << 10;  // longest part of an incomplete line that is kept
constexpr int kMostPieces = 16;  // maximum number of pieces between two checks of the socket
constexpr size_t kMostCommand = 8 << 10;

int64_t now() { return std::time(nullptr); }

// Runs in the child process. Only this process touches the file system.
class RecordProcess {
 public:
  // `streams`: the read end of the launcher's standard streams, or a closed descriptor.
  RecordProcess(std::string path, JobRecord record, UniqueFd socket, UniqueFd output,
                UniqueFd streams)
      : path_(std::move(path)),
        record_(std::move(record)),
        socket_(std::move(socket)),
        output_(std::move(output)),
        streams_(std::move(streams)) {
    record_.writer = ::getpid();
    record_.writer_start = start_of(record_.writer);
  }

  void run() {
    write();
    auto next_sign = Deadline::after(kSign);
    while (!record_.has_ended()) {
      std::array<pollfd, 3> watched{};
      watched[0] = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
      watched[1] = {.fd = output_.get(), .events = POLLIN, .revents = 0};
      watched[2] = {.fd = streams_.get(), .events = POLLIN, .revents = 0};
      if (::poll(watched.data(), watched.size(), next_sign.poll_timeout()) < 0) continue;
      if (watched[0].revents != 0) receive();
      // Copy the earlier output first: readers of the new state then find it in the log.
      if (watched[1].revents != 0 || watched[0].revents != 0) copy_output();
      if (watched[2].revents != 0 || watched[0].revents != 0) copy_streams();
      if (watched[0].revents == 0 && !next_sign.passed()) continue;
      write();
      next_sign = Deadline::after(kSign);
    }
    socket_.reset();  // lets the launcher continue
    remove_old_jobs(path_, now());
  }

 private:
  void receive() {
    std::string text(kMostPacket, '\0');
    const ssize_t size = ::recv(socket_.get(), text.data(), text.size(), 0);
    if (size < 0 && errno == EINTR) return;
    auto record = parse_job_record(std::string_view(text).substr(0, size > 0 ? size : 0));
    if (record.ok()) {
      // The launcher omits these members, which do not change.
      record->command = std::move(record_.command);
      record->directory = std::move(record_.directory);
      record->writer = record_.writer;
      record->writer_start = record_.writer_start;
      record_ = *std::move(record);
    } else if (size <= 0) {
      record_.state = "ended";
      record_.ended = now();
      record_.exit_code = kExitSignal + SIGKILL;
      record_.cause = "the launcher was killed, or could not say how it ended";
      is_killed_ = true;
    }
  }

  // In a running job, limits the number of pieces: fast output must not delay the launcher's reports. The launcher
  // sends all output before it reports the end.
  void copy_output() {
    for (int i = 0; i < kMostPieces || record_.has_ended(); ++i) {
      const ssize_t size =
          output_ ? ::recv(output_.get(), piece_.data(), piece_.size(), MSG_DONTWAIT) : 0;
      if (size < 0 && errno == EINTR) continue;
      if (size == 0) output_.reset();
      if (size <= 0) return;
      std::string_view rest(piece_.data(), static_cast<size_t>(size));
      const auto lines = take_lines(rest);
      if (folder_ && lines.ok() && *lines) files_.write(**lines);
    }
  }

  // Copies whole lines. The last line may be incomplete while the launcher writes it, or after the launcher was killed.
  void copy_streams() {
    const ssize_t size = streams_ ? ::read(streams_.get(), piece_.data(), piece_.size()) : -1;
    if (size > 0) held_.append(piece_.data(), static_cast<size_t>(size));
    if (size == 0) streams_.reset();
    const bool is_whole = record_.has_ended() || held_.size() > kMostHeld;
    const size_t end = is_whole ? held_.size() : held_.rfind('\n') + 1;  // 0 without a line end
    if (end > 0) files_.write({.rank = -1, .is_error = 1, .bytes = held_.substr(0, end)});
    held_.erase(0, end);
  }

  bool open_folder() {
    if (folder_ && is_removed(folder_)) {
      folder_.reset();
      files_.begin_again();
    }
    if (folder_) return true;
    auto folder = make_job_folder(path_, record_.launcher);
    if (!folder.ok()) refuse_once(folder.status());
    if (folder.ok()) folder_ = *std::move(folder);
    return folder.ok();
  }

  void write() {
    if (!open_folder()) return;
    record_.written = now();
    if (!record_.metrics.empty()) show_target();
    if (record_.has_ended()) finish_output();
    bool is_full = false;
    Status status = write_record(folder_, record_, &is_full);
    if (is_full && record_.has_ended()) status = write_over(folder_, record_);
    // If overwriting also needs space, remove old output: the record of the end is worth more.
    while (!status.ok() && is_full && record_.has_ended() && files_.drop_oldest())
      status = write_record(folder_, record_, &is_full);
    has_record_ |= status.ok();
    if (status.ok()) return;
    refuse_once(status);
    // Remove a folder without a record, because commands cannot read it. The next report creates it again.
    if (!has_record_ && remove_empty_job_folder(path_, record_.launcher)) folder_.reset();
  }

  void finish_output() {
    files_.finish();
    if (record_.lost_output > 0) {
      add_to_log(cat(record_.lost_output,
                     " bytes of output are missing here: the disk was too slow at the end"));
    }
    if (is_killed_ && record_.has_output && record_.log.empty()) {
      add_to_log(cat("the launcher, pid ", record_.launcher.pid,
                     ", was killed, or could not say how it ended; agents end their ranks by "
                     "themselves"));
    }
  }

  void add_to_log(const std::string& sentence) {
    files_.write({.rank = -1, .is_error = 1, .bytes = line_of(sentence)});
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
  UniqueFd streams_;
  std::string held_;  // an incomplete line of streams_
  UniqueFd folder_;
  LogFiles files_{folder_, {}};
  std::array<char, 64 << 10> piece_;
  bool has_record_ = false;
  bool is_refused_ = false;
  bool is_killed_ = false;  // the launcher was killed
};

// Ignores signals to the launcher, its terminal or its allocation: this process must outlive the launcher. Closes
// inherited descriptors, for whose end other processes may wait.
[[noreturn]] void run_process(const std::string& path, JobRecord record, UniqueFd socket,
                              UniqueFd output, UniqueFd streams) {
  ::setsid();
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXFSZ, SIGPIPE})
    std::signal(number, SIG_IGN);
  ::prctl(PR_SET_NAME, "horovodrun-rec");
  for (const std::string& name :
       entries_of(UniqueFd(::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC)))) {
    const auto number = parse_int(name);
    if (number && *number != socket.get() && *number != output.get() && *number != streams.get())
      ::close(static_cast<int>(*number));
  }
  if (::chdir("/") != 0) ::_exit(1);
  RecordProcess(path, std::move(record), std::move(socket), std::move(output), std::move(streams))
      .run();
  ::_exit(0);
}

}  // namespace

std::unique_ptr<RecordWriter> RecordWriter::start(std::string path, JobRecord record, Kept kept,
                                                  bool is_quiet) {
  int pair[2];
  std::unique_ptr<LogQueue> output;
  UniqueFd output_reader, streams_reader, streams_writer;
  if (kept == Kept::kStreams && ::pipe2(pair, O_CLOEXEC | O_NONBLOCK) == 0) {
    streams_reader.reset(pair[0]);
    streams_writer.reset(pair[1]);
  }
  if (kept != Kept::kNothing &&
      ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
    output = std::make_unique<LogQueue>(UniqueFd(pair[0]));
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
    run_process(path, std::move(record), std::move(other), std::move(output_reader),
                std::move(streams_reader));
  }
  if (streams_writer) {
    std::fflush(nullptr);
    ::dup2(streams_writer.get(), STDOUT_FILENO);
    ::dup2(streams_writer.get(), STDERR_FILENO);
  }
  return std::unique_ptr<RecordWriter>(new RecordWriter(std::move(path), std::move(record),
                                                        std::move(own), std::move(output), kept,
                                                        child, is_quiet));
}

// The closed socket notifies the child process of the end.
RecordWriter::~RecordWriter() {
  socket_.reset();
  ::waitpid(child_, nullptr, WNOHANG);
}

bool RecordWriter::send() {
  JobRecord changing = record_;
  changing.command.clear();
  changing.directory.clear();
  const std::string text = to_json(changing);
  const bool is_sent =
      ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
  if (is_sent || (errno != EPIPE && errno != ECONNRESET)) return true;
  if (!std::exchange(is_gone_, true)) {
    print_message(
        "the process that keeps the record of this job has ended too early: horovodrun ps -a "
        "cannot show "
        "the end of the job, and its log is not complete");
  }
  return false;
}

bool RecordWriter::receive(int flags) {
  std::array<char, 4096> sentence;
  const ssize_t size = ::recv(socket_.get(), sentence.data(), sentence.size(), flags);
  if (size > 0 && !is_quiet_)
    print_message(std::string_view(sentence.data(), static_cast<size_t>(size)));
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

void RecordWriter::add_message(std::string_view sentence) {
  message_ = sentence;
  if (output_ && kept_ == Kept::kOutput) output_->write(-1, true, line_of(sentence));
}

void RecordWriter::end(int exit_code) {
  record_.state = "ended";
  record_.ended = now();
  record_.exit_code = exit_code;
  if (exit_code == 0) record_.cause.clear();
  if (exit_code != 0 && record_.cause.empty()) record_.cause = cause_before_launches(exit_code);
  send_output();
  record_.lost_output = output_ ? static_cast<int64_t>(output_->missing()) : 0;
  if (!send()) return;
  const auto deadline = Deadline::after(kWaitAtEnd);
  while (!deadline.passed()) {
    pollfd watched{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&watched, 1, deadline.poll_timeout()) > 0 && !receive(MSG_DONTWAIT)) return;
  }
  print_message(
      cat("horovodrun ps -a cannot show the end of this job: ", printable(path_),
          " does not answer; HOROVOD_STATE_DIR names another directory for records of jobs, or "
          "none"));
}

// Returns why a job launched no ranks: its last message, or the signal.
std::string RecordWriter::cause_before_launches(int exit_code) const {
  if (!message_.empty()) return printable(message_.substr(0, message_.find('\n')), 1000);
  if (exit_code <= kExitSignal) return "";
  return cat("ended by ", signal_name(exit_code - kExitSignal), " before anything was started");
}

void RecordWriter::send_output() {
  if (!output_ || send_output_until(Deadline::after(kWaitAtEnd))) return;
  output_->keep_newest(kKeptAtEnd);
  send_output_until(Deadline::after(kWaitAtEnd));
}

bool RecordWriter::send_output_until(Deadline deadline) {
  for (;;) {
    if (output_->flush()) return true;
    if (deadline.passed()) return false;
    pollfd room{.fd = output_->socket(), .events = POLLOUT, .revents = 0};
    ::poll(&room, 1, deadline.poll_timeout());
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
  // The values of variables may be secrets, and a shell may have put them into the command.
  const auto variables = environment();
  for (const std::string& word : Redactor(variables).redact_command(command)) {
    record.command.push_back(word.substr(0, kMostCommand - size));
    size += record.command.back().size() + 1;
    if (size >= kMostCommand) break;
  }
  std::array<char, 4096> folder;
  if (::getcwd(folder.data(), folder.size()) != nullptr) record.directory = folder.data();
  record.allocation = environment_variable("SLURM_JOB_ID").value_or("");
  record.allocation_name = environment_variable("SLURM_JOB_NAME").value_or("");
  record.node = environment_variable("SLURMD_NODENAME").value_or("");
  record.began = record.written = now();
  record.is_constant = !is_elastic(settings);
  record.has_output = keeps_output(settings);
  record.kill_grace = static_cast<int32_t>(std::min(std::ceil(settings.end.kill_grace), 1e6));
  return record;
}

namespace {

// The writers of a job: one in the state directory; for a detached job, also one beside its log.
using Writers = std::vector<std::unique_ptr<RecordWriter>>;

// Returns only errors about the record of a detached job; others become messages.
Result<Writers> start_writers(const LaunchSettings& settings, JobRecord record) {
  const std::string path =
      state_folder_path(settings.output.state_dir, environment_variable("HOME").value_or(""));
  const bool keeps = keeps_output(settings);
  Writers writers;
  if (settings.job.detach) {
    const std::string local = local_state_path(settings.output.spool_dir);
    HVD_RETURN_IF_ERROR(begin_local_record(local, record));
    writers.push_back(RecordWriter::start(local, record, Kept::kStreams, false));
    if (writers.back() == nullptr) return unavailable("the log of a detached job needs a process");
    record.log = local;
  } else if (path.empty() && settings.output.state_dir != "none" && keeps) {
    print_message(
        "there is no HOME: horovodrun ps -a cannot show this job; HOROVOD_STATE_DIR names a "
        "directory for records of jobs, or none");
  }
  if (path.empty()) return writers;
  const bool is_asked = keeps || settings.table().is_set("state_dir");
  const Kept kept = keeps && !settings.job.detach ? Kept::kOutput : Kept::kNothing;
  if (auto writer = RecordWriter::start(path, std::move(record), kept, !is_asked))
    writers.push_back(std::move(writer));
  return writers;
}

}  // namespace

int record_job(const LaunchSettings& settings, std::span<const std::string> command,
               const DetachedEvents& detached, const std::function<int(const LaunchEvents&)>& run) {
  if (settings.job.dry_run) return run({});
  const std::unique_ptr<MetricsPort> metrics = MetricsPort::open(settings);
  JobRecord record = new_record(settings, command);
  if (metrics) record.metrics = metrics->target();
  const auto writers = start_writers(settings, std::move(record));
  if (!writers.ok()) return refuse(writers.status());
  if (detached.on_recorded) detached.on_recorded();
  copy_messages([&](std::string_view sentence) {
    for (const auto& writer : *writers) writer->add_message(sentence);
  });
  const LaunchEvents events{.on_running =
                                [&](int ranks) {
                                  for (const auto& writer : *writers) writer->running(ranks);
                                  if (detached.on_running) detached.on_running();
                                },
                            .on_end =
                                [&](const std::string& cause) {
                                  for (const auto& writer : *writers) writer->set_cause(cause);
                                },
                            .output = writers->empty() ? nullptr : writers->front()->output(),
                            .metrics = metrics.get()};
  const int exit_code = run(events);
  copy_messages({});
  for (const auto& writer : *writers) writer->end(exit_code);
  return exit_code;
}

}  // namespace hvd::launcher
