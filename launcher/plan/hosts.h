// Parses the value of -H, and hostfiles in the formats of the original Horovod, Open MPI, MPICH and DeepSpeed. Pure:
// reads no file, resolves no name.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

constexpr int kMaxSlotsPerHost = 65536;
constexpr int kUnknownSlots = 0;    // the host's agent must first count its GPUs or cores
constexpr int kMaxSlots = 1 << 24;  // limit of the sum of slots over all hosts

struct Host {
  std::string name;  // a name or an address, IPv6 without brackets
  std::string user;  // login of "user@host"; empty: ssh's own default
  int slots = 1;
  int port = 0;       // sshd's port; 0: the port of -p, or ssh's default
  int max_slots = 0;  // limit of slots for an explicit -np; 0: the limit is `slots`
  // The scheduler's resources, for messages: "1 task, 4 GPUs"; may be empty.
  std::string offered = {};

  friend bool operator==(const Host&, const Host&) = default;
};

// One item: "[user@]name[:slots]", "[user@][address][:slots]", or names with ranges.
struct HostItem {
  std::vector<std::string> names;
  std::string user;
  int slots = 0;  // 0: not given
  int port = 0;   // 0: not given
};

// Hosts in the order of their first mention. Repeating a host adds the slots of both mentions.
class HostList {
 public:
  Status add(Host host);
  // Adds each name of the item, with `slots_alone` slots if the item has no number.
  Status add(const HostItem& item, int slots_alone);
  bool has(std::string_view name) const { return index_.find(name) != index_.end(); }
  // Returns the hosts; an error if the sum of slots is too large.
  Result<std::vector<Host>> take();

 private:
  std::vector<Host> hosts_;
  std::map<std::string, size_t, std::less<>> index_;
  int64_t total_ = 0;
};

Result<HostItem> parse_host_item(std::string_view text);

Result<int> parse_slots(std::string_view text);

// Checks a name from a scheduler.
Status check_host_name(std::string_view name);

// Parses "a:4, user@b:2, [fd00::1]:4, n[01-16]:8, c": commas and white space separate items, and
// empty items are ignored. A host without a number has `slots_alone` slots; a repeated host has the sum. An
// error names the item.
Result<std::vector<Host>> parse_hosts(std::string_view list, int slots_alone = 1);

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

// Parses the words of a line, at least one: "a", "a:4" or "n[01-16]", then key=value words. The keys are those of Open
// MPI 4.1; '-' in a key is read as '_'. Number of slots: "slots", "cpu" or "count". Limit of slots: "max_slots" or a
// synonym; without a number of slots, it is also this number. Login: "user", "username" or "user_name". Port of sshd:
// "port". On a line without a slot count, an unknown word is an error: it may be a misspelt count. On other lines, the
// word is added to `unknown`.
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
