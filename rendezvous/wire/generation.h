// Keys and messages with which the launcher of an elastic job and its processes agree on generations. A generation
// is one membership of the job: an ordered list of processes. The index of a process is its rank. A process has one
// number for its whole life. All values are in the job's signed store. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/text.h"
#include "rendezvous/store/membership.h"

namespace hvd::rendezvous {

// A process requests a place by setting the key to a PlaceRequest. The launcher sets
// place_answer_key to a PlaceAnswer, and removes it when the process requests its next place.
constexpr std::string_view kPlaceRequests = "elastic/request/";
std::string place_request_key(int process);
std::string place_answer_key(int process, int64_t request);

// A process that handles changes of hosts sets this key once. Without such a process, the launcher
// restarts the program when its ranks change.
constexpr std::string_view kFollowers = "elastic/follows/";

// A process sets this key, with its number, to kInsideRun when it enters hvd.elastic.run, to kOutsideRun when
// the function has returned, and to kRaisedInRun when an exception has left it. A process that ends inside has
// failed, with any exit code. A process that ends after an exception has failed if its exit code is not 0.
constexpr std::string_view kElasticRuns = "elastic/run/";
constexpr std::string_view kInsideRun = "1";
constexpr std::string_view kOutsideRun = "0";
constexpr std::string_view kRaisedInRun = "2";

// The launcher's news for the processes of a generation, below one prefix. The values stay until the next news of
// their kind, since removing them would wake each process that waits for news. kLostNews: GenerationNews with a
// sentence that names the lost process or host. kUpdateNews: GenerationNews with HostUpdates in decimal digits.
// kLeaveNews, followed by the number of an agent: LeaveNews.
constexpr std::string_view kGenerationNews = "elastic/news/";
constexpr std::string_view kLostNews = "elastic/news/lost";
constexpr std::string_view kUpdateNews = "elastic/news/update";
constexpr std::string_view kLeaveNews = "elastic/news/leave/";

// Equal to HostUpdateResult in python/horovod/_elastic.py.
enum HostUpdates : int32_t { kHostsUnchanged = 0, kHostsRemoved = 1, kHostsAdded = 2 };

// The function in which a process requests its place.
enum class PlaceRequestFrom : int32_t {
  kInit = 0,        // hvd.init; while other ranks train, the answer is provisional
  kCollective = 1,  // first collective after a provisional answer; takes no other place
  kElasticRun = 2,  // hvd.elastic.run after a provisional answer; takes any place
};

// Used instead of the number of commits for a process of an older release, which does not count commits.
constexpr int32_t kUncountedCommits = 1'000'000;

struct PlaceRequest {
  int64_t number = 1;       // counts this process's requests, from 1
  int32_t generation = -1;  // the process's last generation; -1: none
  int32_t commits =
      kUncountedCommits;  // number of times that the process saved its state in that generation
  PlaceRequestFrom from = PlaceRequestFrom::kInit;
};
Bytes encode(const PlaceRequest& request);
Result<PlaceRequest> decode_place_request(ByteView bytes);

struct PlaceAnswer {
  Place place{};
  bool has_new_members = false;  // a process was not in the previous generation
  // The process will have this place when all processes of the plan have requested a place again.
  // The generation has not begun.
  bool is_provisional = false;
  bool is_removed = false;  // no place is left, and the process ends
};
Bytes encode(const PlaceAnswer& answer);
Result<PlaceAnswer> decode_place_answer(ByteView bytes);

struct GenerationNews {
  int32_t generation = 0;
  std::string text;
};
Bytes encode(const GenerationNews& news);
Result<GenerationNews> decode_generation_news(ByteView bytes);

// News that an agent will end, together with the processes of its host.
struct LeaveNews {
  int32_t seconds = 0;  // time left, from the time of the news
  std::vector<int32_t> processes;
};
Bytes encode(const LeaveNews& news);
Result<LeaveNews> decode_leave_news(ByteView bytes);

struct Generation {
  struct Member {
    int32_t process = 0;
    bool is_new = false;  // not in the previous generation
    std::string host;
  };
  int32_t number = 0;
  std::vector<Member> members;  // by rank; the members of one host are consecutive

  bool has_new_members() const;
};
// Returns the answers to the members, by rank.
std::vector<PlaceAnswer> answers_of(const Generation& generation);

// Returns the key of a rank whose work failed because another rank, PEER, left the job. The value is "PEER", in decimal
// digits, or "PEER SENTENCE" if the connection to the peer broke and the peer may be alive.
inline std::string left_by_key(int rank) { return cat("left-by/", rank); }

}  // namespace hvd::rendezvous
