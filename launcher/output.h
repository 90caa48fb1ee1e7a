// What the ranks print: tagged whole lines on our standard output and error, and a copy in files
// when asked. A stalled terminal holds back the ranks (by credit), never the loop. Lives on the
// loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/agent_link.h"
#include "launcher/line_tagger.h"
#include "launcher/sink.h"

namespace hvd::launcher {

class Output {
 public:
  // `size` ranks. `directory` (empty: none) is made with rank.N/stdout and rank.N/stderr in it, N
  // padded with zeros to one width; an error names the path.
  static Result<std::unique_ptr<Output>> open(net::asio::any_io_executor executor, int size,
                                              const std::string& directory);

  // How many bytes of a rank were shown, so that it may write as many more.
  using Consumed = std::function<void(int rank, OutputStream stream, size_t size)>;
  void on_consumed(Consumed callback) { consumed_ = std::move(callback); }
  // Our standard output or error can take no more.
  using Broken = std::function<void(OutputStream stream, int error_number)>;
  void on_broken(Broken callback);

  void write(int rank, OutputStream stream, ByteView bytes);
  // The rank will write no more.
  void end(int rank, OutputStream stream);
  // A line of the launcher itself, on standard error: "horovodrun: " + sentence.
  void say(std::string_view sentence);

  bool is_stalled() const { return stdout_.is_stalled() || stderr_.is_stalled(); }
  net::Task<void> drain();
  // Throws away what is stalled now, and what follows on that stream: the user will not wait.
  void discard_stalled();

 private:
  struct Channel {
    Channel(int rank, OutputStream stream);
    LineTagger tagger;
    UniqueFd file;
    std::string path;
  };

  Output(net::asio::any_io_executor executor, int size);
  Status open_files(const std::string& directory);
  Channel& channel(int rank, OutputStream stream);
  Sink& sink(OutputStream stream) { return stream == OutputStream::kStdout ? stdout_ : stderr_; }
  void copy_to_file(Channel& channel, std::string_view lines);

  int size_;
  Sink stdout_, stderr_;
  std::vector<Channel> channels_;  // two a rank
  Consumed consumed_;
};

// "[3]<stdout>:".
std::string output_tag(int rank, OutputStream stream);
// "03" for rank 3 of 11 to 100.
std::string padded_rank(int rank, int size);

}  // namespace hvd::launcher
