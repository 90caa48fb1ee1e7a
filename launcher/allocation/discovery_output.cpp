#include "launcher/allocation/discovery_output.h"

#include <map>
#include <set>
#include <utility>

#include "base/names/name_ranges.h"
#include "base/text.h"
#include "launcher/plan/hostfile.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMaxWarnings = 20;
constexpr size_t kMaxMentions = kMaxNames;  // limits the time for lines with ranges

// Returns whether the name is a missing value in the spelling of jq, Python or JavaScript.
bool is_missing_value(std::string_view name) {
  const std::string word = to_lower(name);
  return word == "null" || word == "none" || word == "nil" || word == "undefined";
}

class OutputReader {
 public:
  explicit OutputReader(int slots_alone) : slots_alone_(slots_alone) {}

  void read(std::string_view text) {
    HostfileLines lines(text);
    while (mentions_ <= kMaxMentions && lines.next()) {
      number_ = lines.number();
      const std::string_view content = lines.content();
      bool is_empty = true;
      for (const std::string_view part : split_outside_brackets(content)) {
        const std::string_view item = trim(part);
        if (item.empty()) continue;
        is_empty = false;
        has_words_ = true;
        has_answer_ |= item.ends_with(":0") || item.ends_with("slots=0");
        if (const Status status = read_item(item); !status.ok()) skip(item, status.message());
      }
      if (is_empty) skip(content, "it names no host");
    }
    if (lines.open_comment() != 0) {
      warn(cat("the comment that begins with /* in line ", lines.open_comment(), " has no */"));
    }
  }

  DiscoveryOutput take() {
    output_.is_error = has_words_ && !has_answer_ && output_.hosts.empty();
    if (unreported_ > 0)
      output_.warnings.push_back(cat("and ", unreported_, " more such warnings"));
    return std::move(output_);
  }

 private:
  Status read_item(std::string_view text) {
    const auto words = words_of(text);
    std::set<std::string> more;
    HVD_ASSIGN_OR_RETURN(const HostItem item, parse_host_words(words, more));
    for (const std::string& word : more) {
      if (unknown_.insert(word).second) {
        warn(cat("line ", number_, ": the word '", word, "' is unknown and has no effect"));
      }
    }
    for (const std::string& name : item.names) {
      if (is_missing_value(name)) {
        return invalid_argument(cat("'", name, "' stands for a missing value"));
      }
      if (++mentions_ > kMaxMentions) {
        return invalid_argument(
            cat("the output names hosts more than ", kMaxMentions, " times; the rest is ignored"));
      }
      HVD_RETURN_IF_ERROR(
          add({name, item.user, item.slots ? item.slots : slots_alone_, item.port}));
    }
    return {};
  }

  Status add(Host host) {
    const auto [known, is_new] = index_.emplace(host.name, output_.hosts.size());
    const int64_t earlier_slots = is_new ? 0 : output_.hosts[known->second].slots;
    if (total_ + host.slots - earlier_slots > kMaxSlots) {
      if (is_new) index_.erase(known);
      return invalid_argument(cat("all hosts would have more than ", kMaxSlots, " slots"));
    }
    total_ += host.slots - earlier_slots;
    if (is_new) {
      output_.hosts.push_back(std::move(host));
      return {};
    }
    Host& earlier = output_.hosts[known->second];
    if (earlier.slots != host.slots) {
      warn(cat("line ", number_, " gives host ", host.name, " ", host.slots,
               " slots, an earlier line ", earlier.slots, "; the last line counts"));
    } else if (earlier.user != host.user) {
      warn(cat("line ", number_, " gives host ", host.name,
               " another user than an earlier line; the last line counts"));
    } else if (earlier.port != host.port) {
      warn(cat("line ", number_, " gives host ", host.name,
               " another port than an earlier line; the last line counts"));
    }
    earlier = std::move(host);
    return {};
  }

  void skip(std::string_view item, std::string_view reason) {
    warn(cat("'", printable(item), "' in line ", number_, " is skipped: ", reason));
  }

  void warn(std::string sentence) {
    if (output_.warnings.size() < kMaxWarnings) {
      output_.warnings.push_back(std::move(sentence));
    } else {
      ++unreported_;
    }
  }

  const int slots_alone_;
  DiscoveryOutput output_;
  std::map<std::string, size_t, std::less<>> index_;  // host name -> index in output_.hosts
  int64_t total_ = 0;                                 // sum of slots
  std::set<std::string> unknown_;                     // words that already have a warning
  size_t number_ = 0;                                 // line number
  size_t mentions_ = 0;                               // number of times that lines name a host
  size_t unreported_ = 0;                             // number of dropped warnings
  bool has_words_ = false;
  bool has_answer_ = false;  // a line has named a host, even a host without slots
};

}  // namespace

DiscoveryOutput parse_discovery_output(std::string_view text, int slots_alone) {
  OutputReader reader(slots_alone);
  reader.read(text);
  return reader.take();
}

}  // namespace hvd::launcher
