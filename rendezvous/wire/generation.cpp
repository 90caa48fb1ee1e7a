#include "rendezvous/wire/generation.h"

#include <algorithm>
#include <iterator>

namespace hvd::rendezvous {
namespace {

constexpr std::string_view kFirstLine = "horovod place 2";
constexpr int64_t kMaxNumber = 1 << 30;
// The last number in the text of a PlaceAnswer.
enum AnswerKind : int32_t { kFinalPlace = 0, kProvisionalPlace = 1, kNoPlace = 2 };

// Parses a number from `least` to kMaxNumber.
Result<int32_t> read_number(std::string_view text, int64_t least) {
  const auto number = parse_int(text);
  if (!number || *number < least || *number > kMaxNumber) {
    return invalid_argument(cat("'", printable(text), "' is not a number from ", least));
  }
  return static_cast<int32_t>(*number);
}

}  // namespace

std::string place_request_key(int process) { return cat(kPlaceRequests, process); }
std::string place_answer_key(int process, int64_t request) {
  return cat("elastic/answer/", process, "/", request);
}

Bytes encode(const PlaceRequest& request) {
  return to_bytes(cat(request.number, " ", request.generation, " ", request.commits, " ",
                      static_cast<int32_t>(request.from)));
}

Result<PlaceRequest> decode_place_request(ByteView bytes) {
  const std::vector<std::string> words = split(as_text(bytes), ' ');
  if (words.size() < 2 || words.size() > 4) {
    return invalid_argument("a request for a place has two to four numbers");
  }
  PlaceRequest request;
  HVD_ASSIGN_OR_RETURN(request.number, read_number(words[0], 1));
  HVD_ASSIGN_OR_RETURN(request.generation, read_number(words[1], -1));
  if (words.size() > 2) {
    HVD_ASSIGN_OR_RETURN(request.commits, read_number(words[2], 0));
  }
  if (words.size() > 3) {
    HVD_ASSIGN_OR_RETURN(const int32_t from, read_number(words[3], 0));
    request.from = static_cast<PlaceRequestFrom>(from);
    if (request.from > PlaceRequestFrom::kElasticRun) {
      return invalid_argument(cat("a process does not ask for its place from ", from));
    }
  }
  return request;
}

bool Generation::has_new_members() const {
  return std::any_of(members.begin(), members.end(), [](const Member& one) { return one.is_new; });
}

std::vector<PlaceAnswer> answers_of(const Generation& generation) {
  std::vector<std::string> hosts;
  for (const Generation::Member& member : generation.members) hosts.push_back(member.host);
  const bool has_new = generation.has_new_members();
  std::vector<PlaceAnswer> answers;
  for (const Place& place : number_places(hosts)) {
    answers.push_back({.place = place, .has_new_members = has_new});
    answers.back().place.generation = generation.number;
  }
  return answers;
}

// Writes two lines. The second has the generation, three pairs of rank and size, 1 for new members, and an AnswerKind.
Bytes encode(const PlaceAnswer& answer) {
  const Place& place = answer.place;
  return to_bytes(cat(kFirstLine, "\n", place.generation, " ", place.rank, " ", place.size, " ",
                      place.local_rank, " ", place.local_size, " ", place.cross_rank, " ",
                      place.cross_size, " ", answer.has_new_members ? 1 : 0, " ",
                      answer.is_removed       ? kNoPlace
                      : answer.is_provisional ? kProvisionalPlace
                                              : kFinalPlace,
                      "\n"));
}

Result<PlaceAnswer> decode_place_answer(ByteView bytes) {
  const std::vector<std::string> lines = hvd::split(as_text(bytes), '\n');
  if (lines.size() != 3 || lines[0] != kFirstLine || !lines[2].empty()) {
    return invalid_argument("the launcher's answer to the request for a place has another format");
  }
  const std::vector<std::string> words = hvd::split(lines[1], ' ');
  PlaceAnswer answer;
  Place& place = answer.place;
  int32_t has_new = 0, kind = 0;
  int32_t* const numbers[] = {&place.generation, &place.rank,       &place.size,
                              &place.local_rank, &place.local_size, &place.cross_rank,
                              &place.cross_size, &has_new,          &kind};
  if (words.size() != std::size(numbers)) return invalid_argument("a place has nine numbers");
  for (size_t i = 0; i < words.size(); ++i) {
    HVD_ASSIGN_OR_RETURN(*numbers[i], read_number(words[i], 0));
  }
  answer.is_removed = kind == kNoPlace;
  if (answer.is_removed) return answer;
  if (place.rank >= place.size || place.local_rank >= place.local_size ||
      place.cross_rank >= place.cross_size || place.local_size > place.size ||
      place.cross_size > place.size || has_new > 1 || kind > kProvisionalPlace) {
    return invalid_argument("a place is not one of its generation");
  }
  answer.has_new_members = has_new == 1;
  answer.is_provisional = kind == kProvisionalPlace;
  return answer;
}

Bytes encode(const GenerationNews& news) { return to_bytes(cat(news.generation, " ", news.text)); }

Result<GenerationNews> decode_generation_news(ByteView bytes) {
  const std::string_view text = as_text(bytes);
  const size_t space = text.find(' ');
  if (space == std::string_view::npos) return invalid_argument("news have no generation");
  GenerationNews news;
  HVD_ASSIGN_OR_RETURN(news.generation, read_number(text.substr(0, space), 0));
  news.text = text.substr(space + 1);
  return news;
}

Bytes encode(const LeaveNews& news) {
  std::string text = cat(news.seconds);
  for (const int32_t process : news.processes) text += cat(" ", process);
  return to_bytes(text);
}

Result<LeaveNews> decode_leave_news(ByteView bytes) {
  LeaveNews news;
  const std::vector<std::string> words = split(as_text(bytes), ' ');
  HVD_ASSIGN_OR_RETURN(news.seconds, read_number(words.empty() ? "" : words[0], 0));
  for (size_t i = 1; i < words.size(); ++i) {
    HVD_ASSIGN_OR_RETURN(const int32_t process, read_number(words[i], 0));
    news.processes.push_back(process);
  }
  return news;
}

}  // namespace hvd::rendezvous
