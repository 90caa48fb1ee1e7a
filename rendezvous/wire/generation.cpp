#include "rendezvous/wire/generation.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "base/words.h"

namespace hvd::rendezvous {
namespace {

constexpr std::string_view kFirstLine = "horovod generation 1";
constexpr int64_t kMaxNumber = 1 << 30;

// A number from `least` to kMaxNumber.
Result<int32_t> read_number(std::string_view text, int64_t least) {
  const auto number = parse_int(text);
  if (!number || *number < least || *number > kMaxNumber) {
    return invalid_argument(cat("'", printable(text), "' is no number from ", least));
  }
  return static_cast<int32_t>(*number);
}

}  // namespace

std::string place_request_key(int process) { return cat(kPlaceRequests, process); }
std::string place_answer_key(int process, int64_t request) {
  return cat("elastic/answer/", process, "/", request);
}
std::string generation_key(int32_t generation) { return cat("elastic/generation/", generation); }
std::string generation_news_key(int32_t generation, std::string_view news) {
  return cat(kGenerationNews, generation, "/", news);
}

Bytes encode(const PlaceRequest& request) {
  return to_bytes(cat(request.number, " ", request.generation));
}

Result<PlaceRequest> decode_place_request(ByteView bytes) {
  const std::vector<std::string> words = split(as_text(bytes), ' ');
  if (words.size() != 2) return invalid_argument("a request for a place has two numbers");
  PlaceRequest request;
  HVD_ASSIGN_OR_RETURN(request.number, read_number(words[0], 1));
  HVD_ASSIGN_OR_RETURN(request.generation, read_number(words[1], -1));
  return request;
}

bool Generation::has_new_members() const {
  return std::any_of(members.begin(), members.end(), [](const Member& one) { return one.is_new; });
}

// One line for each member, behind two others: its process, 1 when it is new, its host.
Bytes encode(const Generation& generation) {
  std::string text = cat(kFirstLine, "\n", generation.number, "\n");
  for (const Generation::Member& member : generation.members) {
    text += cat(member.process, " ", member.is_new ? 1 : 0, " ", member.host, "\n");
  }
  return to_bytes(text);
}

Result<Generation> decode_generation(ByteView bytes) {
  const std::vector<std::string> lines = split(as_text(bytes), '\n');
  if (lines.size() < 4 || lines.front() != kFirstLine || !lines.back().empty()) {
    return invalid_argument("the record of a generation has another format");
  }
  Generation generation;
  HVD_ASSIGN_OR_RETURN(generation.number, read_number(lines[1], 0));
  std::set<int32_t> processes;
  std::set<std::string> hosts;
  for (size_t line = 2; line + 1 < lines.size(); ++line) {
    const size_t first = lines[line].find(' ');
    const size_t second = first == std::string::npos ? first : lines[line].find(' ', first + 1);
    if (second == std::string::npos || second + 1 == lines[line].size()) {
      return invalid_argument("a member of a generation has three words");
    }
    Generation::Member member;
    HVD_ASSIGN_OR_RETURN(member.process,
                         read_number(std::string_view(lines[line]).substr(0, first), 0));
    const std::string word = lines[line].substr(first + 1, second - first - 1);
    if (word != "0" && word != "1") return invalid_argument("a member is new (1) or not (0)");
    member.is_new = word == "1";
    member.host = lines[line].substr(second + 1);
    const bool is_same_host =
        !generation.members.empty() && generation.members.back().host == member.host;
    if (!processes.insert(member.process).second ||
        (!is_same_host && !hosts.insert(member.host).second)) {
      return invalid_argument("a generation names a process twice, or splits the ranks of a host");
    }
    generation.members.push_back(std::move(member));
  }
  return generation;
}

Result<Place> place_of(const Generation& generation, int32_t process) {
  std::vector<std::string> hosts;
  std::optional<size_t> rank;
  for (const Generation::Member& member : generation.members) {
    if (member.process == process) rank = hosts.size();
    hosts.push_back(member.host);
  }
  if (!rank) {
    return not_found(cat("process ", process, " is not in generation ", generation.number));
  }
  Place place = number_places(hosts)[*rank];
  place.generation = generation.number;
  return place;
}

}  // namespace hvd::rendezvous
