// Parses hostfiles in the formats of the original Horovod, Open MPI, MPICH and DeepSpeed. Called
// for --hostfile, for the hostfile of the MPI Operator, and for discovery scripts. Pure.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/plan/hosts.h"

namespace hvd::launcher {

// The lines of a hostfile that name hosts, without comments (#, //, and /* */ over several lines) and
// without a byte order mark. Refers to `text`.
class HostfileLines {
 public:
  explicit HostfileLines(std::string_view text);

  // Moves to the next line with content.
  bool next();
  const std::string& content() const { return content_; }
  size_t number() const { return number_; }
  // The line in which a comment begins that has no end; 0: no comment is open.
  size_t open_comment() const { return open_comment_; }

 private:
  std::string_view rest_;
  std::string content_;
  size_t number_ = 0;
  size_t open_comment_ = 0;
};

// The words of one line, at least one: "a", "a:4" or "n[01-16]", then key=value words. The slots are
// "slots", "cpu" or "count", their limit is "max_slots" and the like, which also is their number where
// no other is given, the login is "user", "username" or "user_name", and sshd's port is "port"; '-' counts
// as '_'. Source of the words: what Open MPI 4.1 accepts. An unknown word is an error on a line without a
// number of slots, since it may mean one, and added to `unknown` elsewhere.
Result<HostItem> parse_host_words(std::span<const std::string_view> words,
                                  std::set<std::string>& unknown);

struct Hostfile {
  std::vector<Host> hosts;
  std::vector<std::string> warnings;  // a sentence for each unknown word
};

// One host a line: "a slots=4 max_slots=8", "a:4 user=me", "n[01-16] slots=4" or "a", which has
// `slots_alone`. `path` is for messages, which name it and the line.
Result<Hostfile> parse_hostfile(std::string_view text, std::string_view path, int slots_alone = 1);

}  // namespace hvd::launcher
