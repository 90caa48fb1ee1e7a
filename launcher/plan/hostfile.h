// Parses hostfiles in the formats of the original Horovod, Open MPI, MPICH and DeepSpeed. Used for
// --hostfile, for the hostfile of the MPI Operator, and for discovery scripts. Pure.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/plan/hosts.h"

namespace hvd::launcher {

// The lines of a hostfile that name hosts, without comments (#, //, and multi-line /* */) and without a byte
// order mark. Refers to `text`.
class HostfileLines {
 public:
  explicit HostfileLines(std::string_view text);

  // Moves to the next line with content.
  bool next();
  const std::string& content() const { return content_; }
  size_t number() const { return number_; }
  // Returns the number of the line where an unterminated comment begins; 0 without such a comment.
  size_t open_comment() const { return open_comment_; }

 private:
  std::string_view rest_;
  std::string content_;
  size_t number_ = 0;
  size_t open_comment_ = 0;
};

// Parses the words of a line, at least one: "a", "a:4" or "n[01-16]", then key=value words. The keys for slots
// are "slots", "cpu" and "count"; the limit of slots is "max_slots" or a synonym, and is also the number of slots
// if no other word gives one; the login is "user", "username" or "user_name"; sshd's port is
// "port". '-' in a key is read as '_'. The keys are those of Open MPI 4.1. An unknown word is an error on a line
// without a slot count, since the word may be a misspelt count; on other lines the word is added to `unknown`.
Result<HostItem> parse_host_words(std::span<const std::string_view> words,
                                  std::set<std::string>& unknown);

struct Hostfile {
  std::vector<Host> hosts;
  std::vector<std::string> warnings;  // a sentence for each unknown word
};

// One host per line: "a slots=4 max_slots=8", "a:4 user=me", "n[01-16] slots=4" or "a". A host without a number
// has `slots_alone` slots. Errors name `path` and the line.
Result<Hostfile> parse_hostfile(std::string_view text, std::string_view path, int slots_alone = 1);

}  // namespace hvd::launcher
