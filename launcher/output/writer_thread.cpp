#include "launcher/output/writer_thread.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/files/own_file.h"
#include "base/mutex.h"
#include "base/process/signals.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

// Returns 0 or an errno.
int write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::write(file, bytes.data(), bytes.size());
    if (size < 0 && errno != EINTR) return errno;
    if (size > 0) bytes.remove_prefix(static_cast<size_t>(size));
  }
  return 0;
}

}  // namespace

struct WriterThread::Job {
  File file;
  std::string bytes;
  Step step;  // in place of a write
  std::vector<Done> done;

  int run() const { return step ? step(*file) : write_all(file->get(), bytes); }
};

struct WriterThread::State {
  explicit State(net::asio::any_io_executor executor) : executor(std::move(executor)) {}

  const net::asio::any_io_executor executor;
  Mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs HVD_GUARDED_BY(mutex);
  // The callbacks of the running job. The thread does not own them: they may refer to the loop.
  std::vector<Done> running HVD_GUARDED_BY(mutex);
  bool is_over HVD_GUARDED_BY(mutex) = false;
};

WriterThread::WriterThread(net::asio::any_io_executor executor)
    : state_(std::make_shared<State>(std::move(executor))) {}

WriterThread::~WriterThread() {
  std::deque<Job> dropped;
  std::vector<Done> dropped_running;
  const MutexLock lock(state_->mutex);
  state_->is_over = true;
  dropped.swap(state_->jobs);
  dropped_running.swap(state_->running);
  state_->changed.notify_one();
}

void WriterThread::write(const File& file, std::string_view bytes, Done done) {
  add({.file = file, .bytes = std::string(bytes), .step = {}, .done = {std::move(done)}});
}

void WriterThread::open(const File& file, const std::string& path, int flags, Done done) {
  const auto step = [path, flags](UniqueFd& target) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    std::filesystem::create_directories(folder.parent_path(), error);
    if (error) return error.value();
    const auto own = open_own_folder(folder);
    if (!own.ok()) return errno;
    // A FIFO without a reader is an error, and does not hold up the other files.
    auto file = open_own_file_in(*own, std::filesystem::path(path).filename(), flags, path);
    if (!file.ok()) return errno;
    target = *std::move(file);
    return 0;
  };
  add({.file = file, .bytes = {}, .step = step, .done = {std::move(done)}});
}

void WriterThread::replace(const std::string& path, std::string_view bytes, Done done) {
  const auto step = [path, bytes = std::string(bytes)](UniqueFd& file) {
    const std::string next = cat(path, ".", ::getpid(), ".tmp");
    ::unlink(next.c_str());  // of an earlier process with this pid
    file.reset(::open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!file) return errno;
    int error = write_all(file.get(), bytes);
    if (::close(file.release()) != 0 && error == 0) error = errno;
    if (error == 0 && ::rename(next.c_str(), path.c_str()) != 0) error = errno;
    if (error != 0) ::unlink(next.c_str());
    return error;
  };
  add({.file = std::make_shared<UniqueFd>(), .bytes = {}, .step = step, .done = {std::move(done)}});
}

void WriterThread::remove(const std::string& path, Done done) {
  const auto step = [path](UniqueFd&) { return ::unlink(path.c_str()) == 0 ? 0 : errno; };
  add({.file = std::make_shared<UniqueFd>(), .bytes = {}, .step = step, .done = {std::move(done)}});
}

void WriterThread::close(const File& file, Done done) {
  const auto step = [](UniqueFd& target) { return ::close(target.release()) == 0 ? 0 : errno; };
  add({.file = file, .bytes = {}, .step = step, .done = {std::move(done)}});
}

void WriterThread::add(Job job) {
  if (!is_started_) start();
  if (!is_started_) {
    const int error = job.run();
    net::asio::post(state_->executor, [done = std::move(job.done[0]), error] { done(error); });
    return;
  }
  const MutexLock lock(state_->mutex);
  Job* const last = state_->jobs.empty() ? nullptr : &state_->jobs.back();
  if (last != nullptr && last->file == job.file && !last->step && !job.step) {
    last->bytes += job.bytes;
    last->done.push_back(std::move(job.done[0]));
    return;
  }
  state_->jobs.push_back(std::move(job));
  state_->changed.notify_one();
}

void WriterThread::start() {
  const AllSignalsBlocked blocked;  // they are for the loop's thread
  try {
    // Detached, since no one waits for a file system that does not answer.
    std::thread([state = state_] { work(state); }).detach();
    is_started_ = true;
  } catch (const std::system_error&) {
    // Without a thread, the loop itself writes.
  }
}

void WriterThread::work(const std::shared_ptr<State>& state) {
  MutexLock lock(state->mutex);
  for (;;) {
    while (state->jobs.empty() && !state->is_over) state->changed.wait(lock.native());
    if (state->is_over) return;
    Job job = std::move(state->jobs.front());
    state->jobs.pop_front();
    state->running = std::move(job.done);
    lock.unlock();
    const int error = job.run();
    job.file.reset();  // may close it
    lock.lock();
    if (state->is_over) return;
    net::asio::post(state->executor, [done = std::exchange(state->running, {}), error] {
      for (const Done& each : done) each(error);
    });
  }
}

}  // namespace hvd::launcher
