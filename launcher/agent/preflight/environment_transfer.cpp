#include "launcher/agent/preflight/environment_transfer.h"

#include <utility>

#include "base/text.h"

namespace hvd::launcher {

EnvironmentTransfer::EnvironmentTransfer(net::EventLoop& loop, Events events)
    : events_(std::move(events)),
      server_(loop),
      client_(loop, {.on_part = [this](const StagePart& part) { take_from_host(part); },
                     .on_failure = [this](const std::string& why) { ask_launcher(why); }}) {}

void EnvironmentTransfer::begin(const EnvironmentOffer& offer, std::vector<PackageFile> listed,
                                const std::string& folder, const Network& network) {
  state_ = State::kAsked;
  key_ = offer.key;
  listed_ = std::move(listed);
  for (const PackageFile& file : listed_) {
    files_.push_back(
        {.mode = 0600, .path = file.path, .from = cat(folder, "/", file.path), .size = file.size});
  }
  events_.send(EnvironmentFilesWanted{
      .server = server_.open(key_, files_, network.addresses, network.ports)});
}

bool EnvironmentTransfer::take(const EnvironmentSource& source) {
  if (state_ != State::kAsked) return false;
  source_ = source.host;
  state_ = source.server.port == 0 ? State::kFromLauncher : State::kFromHost;
  if (files_.empty()) {
    end({});
  } else if (state_ == State::kFromHost) {
    client_.begin(source, key_);
  }
  return true;
}

Status EnvironmentTransfer::take(const StagePart& part) {
  taken_ += part.path.size() + part.bytes.size();
  if (state_ == State::kFailed) return failure_;
  const Status status =
      is_expected(part)
          ? write(part)
          : internal_error(
                "the files of the environment differ from the launcher's hashes: a file "
                "may have changed during the copy");
  if (!status.ok()) {
    state_ = State::kFailed;
    failure_ = status;
    server_.close();
  }
  return status;
}

void EnvironmentTransfer::take_from_host(const StagePart& part) {
  if (is_expected(part)) {
    if (const Status status = write(part); !status.ok()) end(status);
    return;
  }
  client_.close();
  ask_launcher(cat("the file ", files_[file_].path, " that host ", source_,
                   " has sent differs from its hash"));
}

bool EnvironmentTransfer::is_expected(const StagePart& part) {
  const PackageFile& file = listed_[file_];
  if (part.kind != (offset_ == 0 ? StageKind::kFile : StageKind::kMore)) return false;
  if (part.path != file.path || part.bytes.size() > file.size - offset_) return false;
  if (part.bytes.empty() && file.size > 0) return false;
  hash_.add(as_bytes(part.bytes));
  return offset_ + part.bytes.size() < file.size || hash_.digest() == file.digest;
}

Status EnvironmentTransfer::write(const StagePart& part) {
  HVD_RETURN_IF_ERROR(events_.write(part));
  offset_ += part.bytes.size();
  server_.offer(before_ + offset_);
  if (offset_ < files_[file_].size) return {};
  before_ += std::exchange(offset_, 0);
  if (++file_ == files_.size()) end({});
  return {};
}

// Requests the files from the launcher. The launcher sends the current file again from its beginning.
void EnvironmentTransfer::ask_launcher(const std::string& why) {
  state_ = State::kFromLauncher;
  offset_ = 0;
  hash_ = {};
  events_.send(EnvironmentFilesWanted{.server = {}, .first = file_, .why = why});
}

void EnvironmentTransfer::end(const Status& status) {
  state_ = State::kOver;
  client_.close();
  if (!status.ok()) server_.close();
  events_.on_end(status);
}

void EnvironmentTransfer::close() {
  state_ = State::kOver;
  client_.close();
  server_.close();
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
