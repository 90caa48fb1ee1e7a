#include "launcher/agent/preflight/environment_transfer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/text.h"

namespace hvd::launcher {

EnvironmentTransfer::EnvironmentTransfer(net::EventLoop& loop, Events events)
    : events_(std::move(events)),
      server_(loop, [this](uint64_t number) { return read(number); }),
      client_(loop, {.on_chunk = [this](const Chunk& chunk) { return take_from_host(chunk); },
                     .on_failure = [this](const std::string& why) { ask_launcher(why); }}) {}

void EnvironmentTransfer::begin(const EnvironmentOffer& offer, std::vector<PackageFile> files,
                                std::string folder, const Network& network) {
  state_ = State::kAsked;
  key_ = offer.key;
  chunks_.emplace(std::move(files));
  folder_ = std::move(folder);
  events_.send(EnvironmentFilesWanted{
      server_.open(key_, chunks_->size(), network.addresses, network.ports)});
}

bool EnvironmentTransfer::take(const EnvironmentSource& source) {
  if (state_ != State::kAsked) return false;
  if (chunks_->size() == 0) {
    end({});
  } else if (source.server.port == 0) {
    ask_launcher("");
  } else {
    state_ = State::kFromHost;
    source_ = source.host;
    client_.begin(source, key_, 0);
  }
  return true;
}

bool EnvironmentTransfer::take(const EnvironmentDigests& more) {
  if (state_ == State::kOver) return true;  // the next hashes were on their way
  if (state_ != State::kFromHost && state_ != State::kFromLauncher) return false;
  if (more.digests.size() > chunks_->size() - digests_.size()) return false;
  digests_.insert(digests_.end(), more.digests.begin(), more.digests.end());
  if (state_ == State::kFromHost) client_.resume();
  return true;
}

bool EnvironmentTransfer::take(const EnvironmentChunk& chunk) {
  if (state_ == State::kOver) return true;
  if (state_ != State::kFromLauncher) return false;
  taken_ += chunk.bytes.size();
  if (is_expected(chunk.number, chunk.bytes))
    write(chunk.bytes);
  else
    end(
        internal_error("the files of the environment differ from the launcher's hashes: a file may "
                       "have changed during the copy"));
  return true;
}

bool EnvironmentTransfer::take_from_host(const Chunk& chunk) {
  if (chunk.number == written_ && written_ == digests_.size()) return false;
  if (is_expected(chunk.number, chunk.bytes)) {
    write(chunk.bytes);
  } else {
    client_.close();
    ask_launcher(cat("a chunk that host ", source_, " has sent differs from its hash"));
  }
  return true;
}

bool EnvironmentTransfer::is_expected(uint64_t number, std::string_view bytes) const {
  return number == written_ && written_ < digests_.size() &&
         bytes.size() == chunks_->at(number).size && sha256(as_bytes(bytes)) == digests_[number];
}

void EnvironmentTransfer::write(const std::string& bytes) {
  const ChunkTable::Place place = chunks_->at(written_);
  const Status status =
      events_.write({.kind = place.offset == 0 ? StageKind::kFile : StageKind::kMore,
                     .mode = 0600,
                     .path = chunks_->files()[place.file].path,
                     .bytes = bytes});
  if (!status.ok()) return end(status);
  server_.offer(++written_);
  if (written_ == chunks_->size()) end({});
}

void EnvironmentTransfer::ask_launcher(const std::string& why) {
  state_ = State::kFromLauncher;
  events_.send(EnvironmentChunksWanted{written_, why});
}

void EnvironmentTransfer::end(const Status& status) {
  state_ = State::kOver;
  client_.close();
  if (!status.ok()) server_.close();
  events_.on_end(status);
}

Result<std::string> EnvironmentTransfer::read(uint64_t number) {
  const ChunkTable::Place place = chunks_->at(number);
  if (open_ != place.file) {
    const std::string path = cat(folder_, "/", chunks_->files()[place.file].path);
    file_.reset(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!file_) return system_error(cat("cannot read ", path), errno);
    open_ = place.file;
  }
  std::string bytes(place.size, '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t size = ::pread(file_.get(), bytes.data() + done, bytes.size() - done,
                                 static_cast<off_t>(place.offset + done));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return internal_error("a file of the environment has become shorter");
    done += static_cast<size_t>(size);
  }
  return bytes;
}

void EnvironmentTransfer::close() {
  state_ = State::kOver;
  client_.close();
  server_.close();
  file_.reset();
  open_.reset();
}

Deadline EnvironmentTransfer::deadline() const {
  const Deadline server = server_.deadline(), client = client_.deadline();
  return server.time() < client.time() ? server : client;
}

void EnvironmentTransfer::on_deadline() {
  if (server_.deadline().passed()) server_.on_deadline();
  if (client_.deadline().passed()) client_.on_deadline();
}

}  // namespace hvd::launcher
